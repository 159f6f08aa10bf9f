/** The inspector beside the gate, for operators. Hides who may see it, and how they come in. */
import { randomBytes, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { Express } from 'express';
import type { Runs } from 'mcp-interlock/runs';
import { optionalPackage } from './optional-package.ts';

/** Where it is. */
const INSPECTOR = '/inspector';

/** An inspector that is mounted. */
export interface MountedInspector {
  /** The path by which a person comes in. Its key is a credential: it belongs in no log. */
  readonly path: string;
  /** Ends the streams of all who watch. */
  close(): void;
}

/**
 * Mounts the inspector. A browser that opens its path with the key gets a cookie, and may look and
 * act. An address proves nothing: behind a proxy of this machine every request is a local one.
 *
 * @throws Failure where its package is not installed
 */
export async function mountInspector(
  app: Express,
  options: { readonly runs: readonly Runs[]; readonly stuckAfterMs: number },
): Promise<MountedInspector> {
  const { inspector } = await optionalPackage(
    '--inspect',
    'mcp-interlock-inspector',
    () => import('mcp-interlock-inspector'),
  );
  const key = randomBytes(24).toString('base64url');
  // Cookies know no port, and another gate of this machine has one too.
  const cookie = `interlock-${randomBytes(4).toString('hex')}`;
  app.get(INSPECTOR, (req, res, next) => {
    if (req.query.key === undefined) {
      next();
      return;
    }
    if (!isSame(String(req.query.key), key)) {
      res.status(403).end('The key is not right: the gate prints it when it starts.');
      return;
    }
    res.cookie(cookie, key, { httpOnly: true, sameSite: 'strict', path: INSPECTOR });
    res.set('cache-control', 'no-store').redirect(`${INSPECTOR}/`);
  });
  const site = inspector({
    ...options,
    authorize: (req) =>
      isSame(cookieOf(req, cookie), key) && { read: true, write: true, actor: 'inspector' },
  });
  app.use(INSPECTOR, site);
  return { path: `${INSPECTOR}?key=${key}`, close: () => site.close() };
}

function isSame(given: string, key: string): boolean {
  return (
    given.length === key.length &&
    timingSafeEqual(Buffer.from(given, 'latin1'), Buffer.from(key, 'latin1'))
  );
}

function cookieOf({ headers }: IncomingMessage, name: string): string {
  const pairs = (headers.cookie ?? '').split('; ');
  return pairs.find((pair) => pair.startsWith(`${name}=`))?.slice(name.length + 1) ?? '';
}
