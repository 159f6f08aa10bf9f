/**
 * `mcp-interlock gate`: a gate in front of a server that one does not own. Hides how it is put
 * together, how it begins and how it ends.
 */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, isIPv6 } from 'node:net';
import express, { type ErrorRequestHandler, type Express, type Response } from 'express';
import { type SessionMiddleware, type SessionStoreOptions, StateMachineGate } from 'mcp-interlock';
import { runsOf, workflowHealth } from 'mcp-interlock/runs';
import { isTable } from '../../../src/basics/options.ts';
import {
  type CommandSpec,
  choiceOf,
  durationOf,
  Failure,
  type Given,
  parseCommand,
  portOf,
  targetOf,
  UsageError,
  urlOf,
} from './command-line.ts';
import { checkOrigin, checkToken, refuse, resourceMetadata, type TokenOptions } from './door.ts';
import { GATE_OPTIONS } from './gate-options.ts';
import { mountInspector } from './inspect.ts';
import { strategyNamed } from './key-option.ts';
import { Log } from './log.ts';
import { gateSettingsOf, mounted } from './mounting.ts';
import { mcpProxy } from './proxy.ts';
import { type OpenStore, storeNamed } from './stores.ts';
import { targetFault } from './upstream.ts';
import { loadWorkflows, type WorkflowFile } from './workflow-file.ts';

const WITHOUT_SESSION = ['refuse', 'pass'] as const;

export const GATE = {
  usage: 'mcp-interlock gate ./gate.ts --target http://127.0.0.1:3001/mcp [options]',
  isFileOptional: true,
  about:
    'Serves MCP at http://127.0.0.1:8080/mcp, lets through what the workflow allows, and hands ' +
    'it to the target: an MCP server over Streamable HTTP, in any language. The default export ' +
    'of the file is a StateMachineGate, or an array of them. Or the file is the same in JSON. ' +
    'With --record it needs no file, and then only watches.',
  options: {
    target: { takes: 'URL', help: 'the MCP endpoint of the server behind the gate; needed' },
    port: { takes: 'PORT', help: 'where to listen; 0 takes a free port. Default 8080' },
    host: { takes: 'ADDRESS', help: 'the address to listen on. Default 127.0.0.1' },
    path: { takes: 'PATH', help: 'the path of the gate. Default /mcp' },
    store: {
      takes: 'URL',
      help:
        'where runs are kept: sqlite:FILE, memory, redis://… or postgres://…. ' +
        'Default sqlite:runs.db',
    },
    key: {
      takes: 'KEY',
      many: true,
      help:
        'what names a run, in order of preference. Default conversation session. ' +
        'Each is session, principal or conversation (both need --jwks or --principal), handle:ARGUMENT=TOOL ' +
        'where TOOL of the server hands handles out, or managed:ARGUMENT=TOOL where the gate ' +
        'adds TOOL and does so',
    },
    jwks: { takes: 'URL', help: 'asks for a JWT, signed with one of these keys' },
    issuer: { takes: 'URL', help: 'who has to have issued it' },
    audience: { takes: 'NAME', help: 'whom it has to be for, such as the public URL of the gate' },
    principal: {
      takes: 'header:NAME',
      help:
        'names callers by this header, such as header:x-api-key. Whatever stands in front has to ' +
        'check it, or set it and drop what clients send',
    },
    claims: {
      takes: 'NAME',
      many: true,
      help: 'a claim of the token that rules may read of the caller, such as role; needs --jwks',
    },
    'allow-host': { takes: 'NAME', many: true, help: 'a DNS name by which clients reach the gate' },
    'allow-origin': {
      takes: 'ORIGIN',
      many: true,
      help: 'a web page that may call, such as http://localhost:6274',
    },
    'without-session': {
      takes: 'WHAT',
      help:
        'what becomes of clients that were connected before the gate, and have no session: ' +
        'refuse, or pass for the first hours: what no workflow names runs. Default refuse',
    },
    service: {
      takes: 'NAME',
      help: 'names this service where others keep runs in the same store. Default: none',
    },
    idle: { takes: 'TIME', help: 'how long a run is kept that nothing touches. Default 24h' },
    'stuck-after': { takes: 'TIME', help: 'when /health counts a run as stuck. Default 1h' },
    drain: { takes: 'TIME', help: 'how long SIGTERM waits for calls that run. Default 20s' },
    inspect: { help: 'serves the inspector to each browser that opens the printed address' },
    ...GATE_OPTIONS,
  },
} as const satisfies CommandSpec;

type GateOptions = Given<typeof GATE.options>;

/** Serves until a signal ends it. Resolves to the status 0 once everything is closed. */
export async function runGate(args: readonly string[]): Promise<number> {
  const { file: path, given } = parseCommand(GATE, args);
  const settings = settingsOf(given);
  const log = new Log(settings.logFormat);
  if (path === '' && settings.recorder === undefined)
    throw new UsageError(`give the file of a gate: ${GATE.usage}; or --record FILE`);
  const file = path === '' ? { gates: [watcher()], sync: undefined } : await loadWorkflows(path);
  const enforce = path !== '' && settings.enforce;
  const store = await settings.openStore(log.warn);
  try {
    const { app, sessions, runs, inspector, endStreams } = await makeApp(
      { ...settings, enforce },
      file,
      store,
      log,
    );
    const server = await listen(app, settings);
    announce(server, settings, file, store, log);
    // Warns of runs that are observed still. A store that is away is an event.
    if (enforce) for (const each of runs) each.count().catch(() => {});
    // Not into the log: its key is a credential.
    if (inspector !== undefined)
      console.error(`Inspector: http://127.0.0.1:${addressOf(server).port}${inspector.path}`);
    await signalled();
    log.say(
      'gate.ending',
      { drainMs: settings.drainMs },
      'Ending, once the calls that run are done.',
    );
    await end(server, sessions, endStreams, settings.drainMs);
    await settings.recorder?.flush();
    return 0;
  } finally {
    await store.close();
  }
}

/** The options, checked. Times are in milliseconds. */
function settingsOf(given: GateOptions) {
  if (given.target === undefined)
    throw new UsageError('--target is needed: the MCP endpoint of the server behind the gate');
  const { path = '/mcp' } = given;
  if (!/^(?:\/[\w.~-]+)+$/.test(path) || /^\/(?:health|inspector)/.test(path))
    throw new UsageError(
      '--path: expected a path such as /mcp, and not /health or /inspector, ' +
        `got ${JSON.stringify(path)}`,
    );
  for (const origin of given['allow-origin'])
    if (urlOf('allow-origin', origin).origin !== origin)
      throw new UsageError(
        `--allow-origin: expected scheme, host and port alone, got ${JSON.stringify(origin)}`,
      );
  const token = tokenOf(given);
  const principal = principalOf(given);
  if (token !== undefined && principal !== undefined)
    throw new UsageError('--principal and --jwks both say who calls: give one of them');
  if (given.claims.length > 0 && token === undefined)
    throw new UsageError('--claims needs --jwks: nothing else says what a caller claims');
  const isNamed = token !== undefined || principal !== undefined;
  return {
    target: targetOf(given.target),
    port: portOf('port', given.port ?? '8080'),
    host: given.host ?? '127.0.0.1',
    path,
    openStore: storeNamed(given.store ?? 'sqlite:runs.db'),
    token,
    principal,
    hosts: given['allow-host'],
    origins: given['allow-origin'],
    ...gateSettingsOf(given),
    sessions: {
      key: given.key.length === 0 ? undefined : given.key.map((key) => strategyNamed(key, isNamed)),
      principal,
      claims: claimsOf(given.claims),
      withoutSession: choiceOf(
        'without-session',
        given['without-session'] ?? 'refuse',
        WITHOUT_SESSION,
      ),
      service: given.service,
      idleMs: given.idle === undefined ? undefined : durationOf('idle', given.idle),
    },
    inspect: given.inspect,
    stuckAfterMs: durationOf('stuck-after', given['stuck-after'] ?? '1h'),
    drainMs: durationOf('drain', given.drain ?? '20s'),
  };
}

/** A gate that binds nothing. */
function watcher(): StateMachineGate {
  return new StateMachineGate({ id: 'watcher', initial: 'any', states: { any: {} } });
}

type Settings = ReturnType<typeof settingsOf>;
type Token = Omit<TokenOptions, 'onFault'>;

function tokenOf({ jwks, issuer, audience }: GateOptions): Token | undefined {
  if (jwks === undefined && issuer === undefined && audience === undefined) return undefined;
  if (jwks === undefined || issuer === undefined || audience === undefined)
    throw new UsageError('--jwks, --issuer and --audience belong together: give all three');
  return { jwks: urlOf('jwks', jwks), issuer, audience };
}

/** Names callers by the digest of a header: it may be a credential, and no store gets one. */
export function principalOf({
  principal,
}: Pick<GateOptions, 'principal'>): SessionStoreOptions['principal'] {
  if (principal === undefined) return undefined;
  const [, name] = /^header:([\w!#$%&'*+.^`|~-]+)$/.exec(principal) ?? [];
  if (name === undefined)
    throw new UsageError(
      `--principal: expected header:NAME, such as header:x-api-key, got ${JSON.stringify(principal)}`,
    );
  return ({ headers }) => {
    const value = headers[name.toLowerCase()];
    if (typeof value !== 'string' || value === '') return undefined;
    return createHash('sha256').update(`mcp-interlock principal ${value}`).digest('base64url');
  };
}

/** Reads the claims of a token that was checked. */
function claimsOf(names: readonly string[]): SessionStoreOptions['claims'] {
  if (names.length === 0) return undefined;
  return ({ auth }) => {
    const payload = isTable(auth) && isTable(auth.payload) ? auth.payload : {};
    const known = names.filter((name) => Object.hasOwn(payload, name));
    return Object.fromEntries(known.map((name) => [name, payload[name]]));
  };
}

async function makeApp(settings: Settings, file: WorkflowFile, opened: OpenStore, log: Log) {
  const { path, token } = settings;
  const onFault = log.warn;
  const { sessions, middlewares } = mounted(settings, file, opened, log);
  const runs = file.gates.map((gate) => runsOf(gate, { sessions }));
  const watched = { runs, stuckAfterMs: settings.stuckAfterMs };
  const health = workflowHealth(watched);
  const streams = new Set<Response>();
  const app = express().disable('x-powered-by');
  app.use(requestLog(log));
  app.use(checkOrigin({ hosts: settings.hosts, origins: settings.origins, onRefused: onFault }));
  app.get(['/health', '/health/ready'], health);
  app.get('/health/live', health.live);
  const inspector = settings.inspect ? await mountInspector(app, watched) : undefined;
  const metadata = token && resourceMetadata({ ...token, onFault });
  if (metadata !== undefined)
    app.get(metadata.path, (_req, res) => void res.json(metadata.document));
  // One route for the gate and the proxy: no path that the one does not match reaches the other.
  app.all(
    path,
    ...(token === undefined ? [] : [checkToken({ ...token, onFault })]),
    ...(settings.principal === undefined ? [] : [checkNamed(settings.principal)]),
    (req, res, next) => {
      if (req.method === 'GET') streams.add(res.once('close', () => streams.delete(res)));
      next();
    },
    ...middlewares,
    mcpProxy(settings.target, { onFault }),
  );
  app.use((_req, res) => refuse(res, 404, `There is nothing here: the gate is at ${path}`));
  app.use(failed(log));
  // A client opens its stream again, at another process or at the next one.
  const endStreams = (): void => {
    for (const stream of streams) stream.destroy();
    inspector?.close();
  };
  return { app, sessions, runs, inspector, endStreams };
}

/** What stands in front names each caller: a request without a name came round it. */
function checkNamed(principal: SessionStoreOptions['principal']): express.RequestHandler {
  return (req, res, next) =>
    principal?.(req) === undefined ? refuse(res, 401, 'The request names no caller') : next();
}

/** One line for each HTTP request, without its query. */
function requestLog(log: Log): express.RequestHandler {
  return (req, res, next) => {
    const begun = performance.now();
    res.once('close', () =>
      log.say('http.request', {
        method: req.method,
        path: req.path,
        status: res.headersSent ? res.statusCode : undefined,
        durationMs: Math.round(performance.now() - begun),
      }),
    );
    next();
  };
}

/** Express has found fault with a request, or our own code has failed. No client sees a stack. */
function failed(log: Log): ErrorRequestHandler {
  return (error: unknown, _req, res, _next) => {
    log.warn(`a request failed: ${error instanceof Error ? error.message : String(error)}`);
    if (res.headersSent) res.destroy();
    else refuse(res, error instanceof URIError ? 400 : 500, 'The request could not be handled');
  };
}

async function listen(app: Express, { host, port }: Settings): Promise<Server> {
  const server = createServer(app);
  try {
    await once(server.listen(port, host), 'listening');
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    const why = code === 'EADDRINUSE' ? 'another program listens there' : String(error);
    throw new Failure(`cannot listen on ${host}, port ${port}: ${why}`);
  }
  return server;
}

function announce(
  server: Server,
  { host, path, target, token, principal }: Settings,
  { gates }: WorkflowFile,
  { name }: OpenStore,
  log: Log,
): void {
  const { port, address } = addressOf(server);
  const url = `http://${isIPv6(address) ? `[${address}]` : host}:${port}${path}`;
  const behind = `${target.origin}${target.pathname}`;
  const workflows = gates.map(({ id }) => id);
  log.say(
    'gate.listening',
    { url, target: behind, workflows, store: name },
    `${url} listens. Target: ${behind}. Workflow: ${workflows.join(', ')}. Runs: ${name}.`,
  );
  if (token === undefined && principal === undefined && !/^(127\.|::1$)/.test(address))
    log.warn(`${address} is reached from other machines, and nothing says who calls: see --jwks`);
  for (const gate of gates) gate.warnings.forEach(log.warn);
  void targetFault(target).then((fault) => {
    if (fault !== undefined) log.warn(`${behind} ${fault}`);
    else log.say('gate.target', { target: behind }, `${behind} answers as an MCP server.`);
  });
}

function addressOf(server: Server): AddressInfo {
  return server.address() as AddressInfo;
}

/** Resolves with the first signal that asks for an end. The second one ends at once. */
async function signalled(): Promise<void> {
  await new Promise<void>((resolve) => {
    for (const signal of ['SIGTERM', 'SIGINT'] as const)
      process.once(signal, () => {
        process.once(signal, () => process.exit(1));
        resolve();
      });
  });
}

/** Waits for steps, then ends event streams, then waits for other answers while time is left. */
async function end(
  server: Server,
  sessions: SessionMiddleware,
  endStreams: () => void,
  drainMs: number,
): Promise<void> {
  const deadline = performance.now() + drainMs;
  await sessions.close({ drainMs });
  const closed = once(server, 'close');
  server.close();
  endStreams();
  const timer = setTimeout(
    () => server.closeAllConnections(),
    Math.max(0, deadline - performance.now()),
  );
  await closed;
  clearTimeout(timer);
}
