/**
 * What `mcp-interlock stdio` gates with. Hides which run that is, where it is kept, and what people
 * and models read of it.
 */
import { createHash, randomUUID } from 'node:crypto';
import { mkdirSync, realpathSync } from 'node:fs';
import { homedir, userInfo } from 'node:os';
import { basename, join, parse, relative, resolve, sep } from 'node:path';
import type { Writable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { principalKey } from 'mcp-interlock';
import { gateFetch } from 'mcp-interlock/fetch';
import { type Runs, runsOf } from 'mcp-interlock/runs';
import { isObject } from '../../../src/wire/json-rpc.ts';
import { durationOf, type Given } from './command-line.ts';
import { strategyNamed } from './key-option.ts';
import { Log } from './log.ts';
import { gateSettingsOf, mounted } from './mounting.ts';
import { Bridge } from './stdio-bridge.ts';
import type { End, STDIO } from './stdio-command.ts';
import type { StdioServer } from './stdio-server.ts';
import { type OpenStore, storeNamed } from './stores.ts';
import { loadWorkflows } from './workflow-file.ts';

/** The longest line, in bytes. */
const MOST_LINE = 16 * 1024 * 1024;
/** How long the server may go on with a call once the client has closed, in milliseconds. */
const STEP_MS = 1_500;
/** How long the last answers and the store may take, in milliseconds. */
const LAST_MS = 1_000;

/** What was there before the gate: the command line, and both sides. */
interface Sides {
  readonly file: string;
  readonly given: Given<typeof STDIO.options>;
  readonly command: readonly string[];
  readonly starting: Promise<StdioServer>;
  readonly output: Writable;
  readonly end: End;
}

/** Serves until the client or the server ends. Resolves to the status of the process. */
export async function gateStdio({ file, given, starting, ...sides }: Sides): Promise<number> {
  const server = await starting;
  let store: OpenStore | undefined;
  try {
    const settings = { ...gateSettingsOf(given), ...runSettingsOf(given) };
    const log = new Log(settings.logFormat);
    const loaded = await loadWorkflows(file);
    const path = realpathSync(file);
    // Absolute, for the lines that a person runs elsewhere.
    const url = given.store?.replace(/^sqlite:([^:].*)/, (_, name) => `sqlite:${resolve(name)}`);
    store = await storeNamed(url ?? `sqlite:${stateFile(path)}`)(log.warn);
    const named = { path, store, subject: subjectOf(path, settings.run) };
    return await serve({ ...settings, ...sides, ...named, file: loaded, log, server });
  } finally {
    await server.end({ isUrgent: () => true });
    await store?.close();
    process.stdin.destroy();
  }
}

function runSettingsOf({ run, key, idle = '30d' }: Given<typeof STDIO.options>) {
  return {
    run: run === 'new' ? randomUUID() : run,
    keys: key.length === 0 ? principalKey() : key.map((each) => strategyNamed(each, true)),
    idle,
    idleMs: durationOf('idle', idle),
  };
}

/** What a gate on stdio is made of. */
interface Serving
  extends ReturnType<typeof gateSettingsOf>,
    ReturnType<typeof runSettingsOf>,
    Pick<Sides, 'command' | 'output' | 'end'> {
  readonly file: Awaited<ReturnType<typeof loadWorkflows>>;
  /** The real path of the gate's file. */
  readonly path: string;
  /** Names the run, within the users of this machine. */
  readonly subject: string;
  readonly store: OpenStore;
  readonly server: StdioServer;
  readonly log: Log;
}

async function serve(serving: Serving): Promise<number> {
  const { file, store, server, output, end, log, subject } = serving;
  const { keys: key, idleMs } = serving;
  const limits = { maxBodyBytes: MOST_LINE, maxMessageBytes: 2 * MOST_LINE };
  const given = { ...serving, sessions: { key, idleMs, ...limits } };
  const { sessions, middlewares } = mounted(given, file, store, log);
  const runs = file.gates.map((gate) => runsOf(gate, { sessions }));
  const auth = () => ({ extra: { iss: ISSUER, sub: subject } });
  const bridge = new Bridge({
    client: { input: process.stdin, output },
    server,
    gate: (handler) => gateFetch(handler, middlewares, { auth }),
    maxLineBytes: MOST_LINE,
    instructions: instructionsOf(serving),
    onFault: log.warn,
    onRoots: (uris) => warnOfFolders(serving, uris.filter(isFile).map(pathOf), 'root'),
    amend: (answer) => withRemedy(answer, runs, serving),
  });
  await announce(serving, runs);
  const reading = bridge.readServer();
  const how = await Promise.race([
    end.asked.then(() => undefined),
    bridge.readClient().then(() => undefined),
    server.ended,
  ]);
  if (how !== undefined) log.warn(`the server ended ${how}`);
  await end.until(STEP_MS, () => how !== undefined || !bridge.isBusy);
  await server.end(end);
  // What it started and left behind may keep its output open.
  await Promise.race([reading, delay(LAST_MS, undefined, { ref: false })]);
  await sessions.close({ drainMs: LAST_MS });
  await bridge.end();
  await serving.recorder?.flush();
  await Promise.race([
    new Promise<void>((done) => output.end(done)),
    delay(LAST_MS, undefined, { ref: false }),
  ]);
  return how === undefined ? 0 : 1;
}

// --- The run, and where it is kept -----------------------------------------------------------

const ISSUER = 'os';

/** The command of the server is no part of it: a new version must lose neither limit nor hold. */
function subjectOf(path: string, run: string | undefined): string {
  return [userName(), path, ...(run === undefined ? [] : [run])].join(' ');
}

function userName(): string {
  try {
    return userInfo().username;
  } catch {
    // A container may run as a number that has no name.
    return String(process.getuid?.() ?? 'user');
  }
}

/** A client's working directory may be `/`, so a file in it would be none. */
function stateFile(path: string): string {
  const { LOCALAPPDATA, XDG_STATE_HOME } = process.env;
  const home = homedir();
  const state =
    process.platform === 'win32'
      ? (LOCALAPPDATA ?? join(home, 'AppData', 'Local'))
      : process.platform === 'darwin'
        ? join(home, 'Library', 'Application Support')
        : XDG_STATE_HOME || join(home, '.local', 'state');
  const folder = join(state, 'mcp-interlock');
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const digest = createHash('sha256').update(path).digest('hex').slice(0, 12);
  return join(folder, `${parse(path).name}-${digest}.db`);
}

function sqliteFile({ name }: OpenStore): string | undefined {
  return name.startsWith('sqlite:') ? realpathSync(name.slice('sqlite:'.length)) : undefined;
}

// --- What people and models read -----------------------------------------------------------------

async function announce(serving: Serving, all: readonly Runs[]): Promise<void> {
  const { file, path, command, store, subject, keys, log } = serving;
  const workflows = file.gates.map(({ id }) => id);
  log.say(
    'stdio.started',
    { workflows, gate: path, server: basename(command[0] ?? ''), store: store.name },
    `mcp-interlock: ${workflows.join(', ')} of ${path} in front of ${command[0]}. ` +
      `Runs: ${store.name}.`,
  );
  for (const gate of file.gates) gate.warnings.forEach(log.warn);
  const folder = process.cwd();
  if (folder !== parse(folder).root) warnOfFolders(serving, [folder], 'working directory');
  const run = principalKey().runKey({ issuer: ISSUER, subject });
  const found = await Promise.all(all.map((runs) => runs.read(run))).catch(() => []);
  const isShared = 'kind' in keys && keys.kind === 'principal';
  if (isShared && serving.run === undefined) log.say('stdio.run', { run: 'shared' }, SHARED);
  if (found.some((view) => view !== undefined)) log.say('stdio.run', { run: 'goes on' }, GOES_ON);
  for (const view of found)
    if (view?.status === 'running')
      log.warn(
        `${view.claim?.tool} runs in another process; or that has ended, and its run is held soon`,
      );
  for (const words of await remedies(all, serving)) log.warn(words);
}

const SHARED =
  'The run is shared: each process of this user with this gate moves it, so that a checkout in ' +
  'one window opens pay in another one. --run NAME, or --run new, keeps processes apart.';
const GOES_ON =
  'The run goes on from earlier starts, and the server has begun anew. If it keeps in its memory ' +
  'what the run relies on, such as a cart, start with --run new.';

function instructionsOf({ file, keys }: Serving): string {
  const workflows = file.gates.map(({ id }) => id).join(', ');
  const isShared = 'kind' in keys && keys.kind === 'principal';
  const shared = ' It goes on from earlier conversations, and other windows of this user share it.';
  return (
    `[System: mcp-interlock lets calls through in the order that the workflow ${workflows} ` +
    `allows. A refusal says what to call first.${isShared ? shared : ''}]`
  );
}

/** How each held call is settled, in whole lines for a shell. */
async function remedies(all: readonly Runs[], serving: Serving): Promise<string[]> {
  const { path, store, idle } = serving;
  const lines: string[] = [];
  for (const runs of all) {
    const { runs: held } = await runs.held({ limit: 5 }).catch(() => ({ runs: [] }));
    for (const { claim } of held)
      if (claim !== undefined)
        lines.push(
          `${claim.tool} of ${runs.workflow} is held: its outcome is unknown. Find out what it ` +
            `came to, then: mcp-interlock resolve ${quoted(path)} --store ${quoted(store.name)} ` +
            `--key ${claim.idempotencyKey} --outcome succeeded|failed ` +
            `--actor ${quoted(userName())} --note WHY --idle ${idle}`,
        );
  }
  return lines;
}

/** An answer about a held run says how a person settles it. */
async function withRemedy(answer: string, all: readonly Runs[], serving: Serving): Promise<string> {
  const message: unknown = JSON.parse(answer);
  const result = isObject(message) ? message.result : undefined;
  if (!isObject(result) || !isObject(result._meta) || !Array.isArray(result.content)) return answer;
  const { 'mcp-interlock/refusal': refusal } = result._meta;
  if (!isObject(refusal) || refusal.reason !== 'held') return answer;
  const lines = await remedies(all, serving);
  result.content.push(...lines.map((text) => ({ type: 'text', text: `[System: ${text}]` })));
  return JSON.stringify(message);
}

/** A word of a shell's line. */
function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

const pathOf = (uri: string): string => fileURLToPath(uri);

function isFile(uri: string): boolean {
  return URL.canParse(uri) && new URL(uri).protocol === 'file:';
}

/** An agent that writes files in a folder may rewrite the gate, or the runs. */
function warnOfFolders(
  { path, store, log }: Serving,
  folders: readonly string[],
  what: string,
): void {
  for (const folder of folders)
    for (const file of [path, sqliteFile(store)])
      if (file !== undefined && isWithin(folder, file))
        log.warn(
          `${file} is in the ${what} ${folder}: an agent that writes files there can change it. ` +
            'Keep the gate and its store elsewhere',
        );
}

function isWithin(folder: string, file: string): boolean {
  const way = relative(folder, file);
  return way !== '' && way !== '..' && !way.startsWith(`..${sep}`) && parse(way).root === '';
}
