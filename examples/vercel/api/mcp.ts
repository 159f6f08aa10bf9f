import type { IncomingMessage, ServerResponse } from 'node:http';
import app from '../app.ts';

export const config = { maxDuration: 60 };

/**
 * For projects whose functions are the files in `api/`: Vercel has read the body by then, and
 * parses it when `req.body` is asked for.
 */
export default function handler(req: IncomingMessage, res: ServerResponse): void {
  app(req, res);
}
