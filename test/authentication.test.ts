import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { exportJWK, generateKeyPair, SignJWT } from 'jose';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Consumer, ROOT } from './helpers/consumer.ts';
import { Page } from './helpers/markdown.ts';
import { INITIALIZE, RawSession, send } from './helpers/raw.ts';

const page = new Page('docs/operate/authentication.md');
const AUDIENCE = 'https://shop.example';

/**
 * What a reader of the page has already. A block may import the same name again.
 */
const AROUND = `
  import express from 'express';
  import { fsmGate, sessionStore, StateMachineGate } from 'mcp-interlock';
  import { mcpHandler } from './mcp-handler.ts';
  import './strategies.ts';
  const app = express();
  const { ISSUER_BASE_URL: issuer, AUDIENCE: audience } = process.env;
  const checkout = new StateMachineGate({
    initial: 'empty',
    states: { empty: { on: { ADD_ITEM: 'has_items' } }, has_items: {} },
  }).bindTool('cart_add_item', 'empty', 'ADD_ITEM');
`;
const LISTEN = `
  const server = app.listen(0, '127.0.0.1', () => console.log('port ' + server.address().port));
`;

/** The reader writes a strategy for Passport. */
const STRATEGIES = `
  import { decodeJwt } from 'jose';
  import passport from 'passport';
  import { Strategy } from 'passport-http-bearer';
  passport.use(new Strategy((token, done) => done(null, { id: decodeJwt(token).sub })));
`;

/** Stands in for providers that need an account, in the shapes that they document. */
const STAND_INS = {
  '@clerk/express/index.js': 'export const clerkMiddleware = () => (req, res, next) => next();',
  '@clerk/mcp-tools/express.js': `
    import { decodeJwt } from 'jose';
    export const mcpAuthClerk = async (req, res, next) => {
      const token = req.headers.authorization?.split(' ')[1];
      if (token === undefined) return void res.status(401).end();
      const extra = { userId: decodeJwt(token).sub };
      req.auth = { token, scopes: [], clientId: 'app', extra };
      next();
    };`,
  '@auth0/auth0-api-js/index.js': `
    import { decodeJwt } from 'jose';
    export class ApiClient {
      verifyAccessToken = async ({ accessToken }) => decodeJwt(accessToken);
    }`,
};

const blockWith = (text: string): string => {
  const found = [...page.blocks('ts'), ...page.blocks('js')].find((block) => block.includes(text));
  return found ?? expect.fail(`no code of the page has ${text}`);
};

describe('the code of docs/operate/authentication.md', () => {
  const consumer = new Consumer();
  const issuing = createServer();
  let issuer: string;
  let tokenOf: (user: string) => Promise<Record<string, string>>;

  beforeAll(async () => {
    consumer.linkInterlock();
    consumer.link(
      '@modelcontextprotocol/sdk',
      'express',
      'express-oauth2-jwt-bearer',
      'jose',
      'libsql',
      'passport',
      'passport-http-bearer',
      'tsx',
      'zod',
    );
    consumer.write('package.json', '{ "type": "module" }');
    for (const file of ['mcp-handler.ts', 'shop.ts'])
      copyFileSync(join(ROOT, 'examples/express-checkout', file), join(consumer.folder, file));
    consumer.write('strategies.ts', STRATEGIES);
    for (const [file, text] of Object.entries(STAND_INS)) {
      const [scope, name] = file.split('/');
      const exported = { '.': './index.js', './express': './express.js' };
      const manifest = { name: `${scope}/${name}`, type: 'module', exports: exported };
      consumer.write(`node_modules/${scope}/${name}/package.json`, JSON.stringify(manifest));
      consumer.write(`node_modules/${file}`, text);
    }
    const { publicKey, privateKey } = await generateKeyPair('RS256');
    const jwk = { ...(await exportJWK(publicKey)), alg: 'RS256', use: 'sig', kid: '1' };
    issuing.on('request', (req, res) => {
      const isKeys = req.url?.endsWith('jwks.json');
      const answer = isKeys ? { keys: [jwk] } : { issuer, jwks_uri: `${issuer}/jwks.json` };
      res.setHeader('content-type', 'application/json').end(JSON.stringify(answer));
    });
    issuing.listen(0, '127.0.0.1');
    await once(issuing, 'listening');
    issuer = `http://127.0.0.1:${(issuing.address() as AddressInfo).port}`;
    tokenOf = async (user) => {
      const token = new SignJWT({
        client_id: 'app',
        azp: 'app',
        scope: 'a',
        jti: `${Math.random()}`,
      })
        .setProtectedHeader({ alg: 'RS256', kid: '1' })
        .setIssuer(issuer)
        .setAudience(AUDIENCE)
        .setSubject(user)
        .setIssuedAt()
        .setExpirationTime('1h');
      return { authorization: `Bearer ${await token.sign(privateKey)}` };
    };
  });

  afterAll(() => {
    issuing.close();
    consumer.remove();
  });

  it.each([
    ['requireBearerAuth', 'createRemoteJWKSet'],
    ['express-oauth2-jwt-bearer', "from 'express-oauth2-jwt-bearer'"],
    ['Passport', 'passport.authenticate'],
    ['Clerk', 'mcpAuthClerk'],
    ['Auth0', 'auth0-api-js'],
  ])(
    'binds a session to its user, whatever the token, and warns of nothing: %s',
    async (name, text) => {
      const file = `${name}.ts`;
      consumer.write(file, `${AROUND}${blockWith(text)}${LISTEN}`);
      const child = spawn(process.execPath, ['--import', 'tsx', file], {
        cwd: consumer.folder,
        env: { ...process.env, ISSUER_BASE_URL: issuer, AUDIENCE },
      });
      let printed = '';
      for (const stream of [child.stdout, child.stderr])
        stream.on('data', (chunk) => (printed += chunk));
      try {
        await expect.poll(() => printed, { timeout: 20_000 }).toMatch(/port \d+|Error/);
        const url = new URL(`http://127.0.0.1:${/port (\d+)/.exec(printed)?.[1] ?? printed}/mcp`);
        expect((await send(url, { body: INITIALIZE })).status).toBe(401);
        const session = await RawSession.begin(url, await tokenOf('ann'));
        expect(await session.tools()).toContain('cart_add_item');
        const again = RawSession.resume(url, session.id, await tokenOf('ann'));
        expect(await again.tools()).toContain('cart_add_item');
        const stranger = RawSession.resume(url, session.id, await tokenOf('bob'));
        const list = { jsonrpc: '2.0', id: 1, method: 'tools/list' };
        expect((await stranger.post(list)).status).toBe(404);
      } finally {
        const closed = once(child, 'close');
        child.kill('SIGKILL');
        await closed;
      }
      expect(printed).not.toContain('InterlockWarning');
    },
  );
});
