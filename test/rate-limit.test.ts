import express, { type Express } from 'express';
import { ipKeyGenerator, rateLimit } from 'express-rate-limit';
import helmet from 'helmet';
import request from 'supertest';
import { expect, it, vi } from 'vitest';
import { fsmGate, memoryStore, sessionStore } from '../src/index.ts';
import { checkoutGate } from './helpers/checkout.ts';
import { Page } from './helpers/markdown.ts';
import { callOf } from './helpers/raw.ts';

/** Mounts the page's route, behind an authentication that takes the name from `x-user`. */
function appOfPage(): Express {
  const block = new Page('docs/start/express.md')
    .blocks('ts')
    .find((code) => code.includes('rateLimit('));
  const given = {
    app: express(),
    store: memoryStore(),
    gate: checkoutGate(),
    mcpHandler: () => {},
    ...{ rateLimit, ipKeyGenerator, helmet, sessionStore, fsmGate },
  };
  given.app.use((req, res, next) => {
    res.locals.user = req.get('x-user');
    next();
  });
  const code = block?.replaceAll(/^import .*;$/gm, '') ?? '';
  new Function(...Object.keys(given), code)(...Object.values(given));
  return given.app;
}

it('the rate limit of the page about Express counts callers, and not invented sessions', async () => {
  const error = vi.spyOn(console, 'error').mockReturnValue();
  const app = appOfPage();
  const statusOf = async (session: string, headers: Record<string, string>): Promise<number> => {
    const post = request(app).post('/limited').set('mcp-session-id', session).set(headers);
    return (await post.send(callOf(1, 'cart.view'))).status;
  };
  for (const headers of [{ 'x-user': 'ann' }, {}] as Record<string, string>[]) {
    const statuses = new Set<number>();
    for (let at = 0; at < 300; at++) statuses.add(await statusOf(`invented-${at}`, headers));
    expect([...statuses]).toEqual([404]);
    expect(await statusOf('another', headers)).toBe(429);
  }
  expect(await statusOf('of-bob', { 'x-user': 'bob' })).toBe(404);
  // express-rate-limit reports a key that it refuses.
  expect(error.mock.calls).toEqual([]);
  error.mockRestore();
});
