/**
 * `mcp-interlock stdio`: a gate in front of a server that speaks stdio, as a client's configuration
 * starts it. Hides which run that is, where it is kept, and how client, gate and server end.
 */
import { createHash, randomUUID } from 'node:crypto';
import { mkdirSync, realpathSync, statfsSync } from 'node:fs';
import { homedir, userInfo } from 'node:os';
import { basename, join, parse, relative, sep } from 'node:path';
import { Writable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { principalKey } from 'mcp-interlock';
import { gateFetch } from 'mcp-interlock/fetch';
import { type Runs, runsOf } from 'mcp-interlock/runs';
import { isObject } from '../../../src/wire/json-rpc.ts';
import {
  type CommandSpec,
  durationOf,
  type Given,
  parseCommand,
  UsageError,
} from './command-line.ts';
import { strategyNamed } from './key-option.ts';
import { Log } from './log.ts';
import { GATE_OPTIONS, gateSettingsOf, mounted } from './mounting.ts';
import { Bridge } from './stdio-bridge.ts';
import { StdioServer } from './stdio-server.ts';
import { type OpenStore, storeNamed } from './stores.ts';
import { loadWorkflows } from './workflow-file.ts';

export const STDIO = {
  usage: 'mcp-interlock stdio ./gate.json [options] -- COMMAND [ARG …]',
  about:
    'Starts an MCP server that speaks stdio, and gates it: the line for the configuration of a ' +
    'client, in front of the command that is there. The file is one of a gate, as for ' +
    '`mcp-interlock gate`. The run belongs to the file of the gate and the user of this machine, ' +
    'and goes on when the client starts the command again.',
  options: {
    run: {
      takes: 'NAME',
      help:
        'another run of the same gate, such as one for each environment; new begins one at each ' +
        'start. Default: one for the file and the user',
    },
    store: {
      takes: 'URL',
      help:
        'where runs are kept: sqlite:FILE, memory, redis://… or postgres://…. Default: a file of ' +
        'SQLite for each gate, in the folder where this platform keeps the state of programs',
    },
    key: {
      takes: 'KEY',
      many: true,
      help:
        'what names a run within the user, in order of preference. Default principal, one run. ' +
        'Others are session, a run for each start; conversation; handle:ARGUMENT=TOOL; and ' +
        'managed:ARGUMENT=TOOL, where the gate adds TOOL, for many conversations in one process',
    },
    idle: { takes: 'TIME', help: 'how long a run is kept that nothing touches. Default 30d' },
    ...GATE_OPTIONS,
  },
} as const satisfies CommandSpec;

/** The longest line, in bytes. */
const MOST_LINE = 16 * 1024 * 1024;
/** How long the server may go on with a call once the client has closed, in milliseconds. */
const STEP_MS = 1_500;
/** How long the last answers and the store may take, in milliseconds. */
const LAST_MS = 1_000;

/** Serves until the client or the server ends. Resolves to the status of the process. */
export async function runStdio(args: readonly string[]): Promise<number> {
  const at = args.indexOf('--');
  const command = at === -1 ? [] : args.slice(at + 1);
  if (command.length === 0)
    throw new UsageError(`give the command of the server behind --: ${STDIO.usage}`);
  const { file, given } = parseCommand(STDIO, args.slice(0, at));
  const settings = { ...gateSettingsOf(given), ...runSettingsOf(given) };
  const output = takeOutput();
  const log = new Log(settings.logFormat);
  // Both take their time.
  const [loaded, started] = await Promise.allSettled([
    loadWorkflows(file),
    StdioServer.start(command),
  ]);
  if (started.status === 'rejected') throw started.reason;
  const server = started.value;
  let store: OpenStore | undefined;
  try {
    if (loaded.status === 'rejected') throw loaded.reason;
    const path = realpathSync(file);
    store = await storeNamed(given.store ?? `sqlite:${stateFile(path)}`)(log.warn);
    const named = { path, command, store, subject: subjectOf(path, settings.run) };
    return await serve({ ...settings, ...named, file: loaded.value, log, server, output });
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
interface Serving extends ReturnType<typeof gateSettingsOf>, ReturnType<typeof runSettingsOf> {
  readonly file: Awaited<ReturnType<typeof loadWorkflows>>;
  /** The real path of the gate's file. */
  readonly path: string;
  /** Names the run, within the users of this machine. */
  readonly subject: string;
  readonly command: readonly string[];
  readonly store: OpenStore;
  readonly server: StdioServer;
  readonly output: Writable;
  readonly log: Log;
}

async function serve(serving: Serving): Promise<number> {
  const { file, store, server, output, log, subject } = serving;
  const limits = { maxBodyBytes: MOST_LINE, maxMessageBytes: 2 * MOST_LINE };
  const { sessions, middlewares } = mounted({ ...serving, ...limits }, file, store, log);
  const runs = file.gates.map((gate) => runsOf(gate, { sessions }));
  const auth = () => ({ extra: { iss: ISSUER, sub: subject } });
  const bridge = new Bridge({
    client: { input: process.stdin, output },
    server,
    gate: (handler) => gateFetch(handler, middlewares, { auth }),
    maxLineBytes: MOST_LINE,
    instructions: instructionsOf(serving),
    onFault: log.warn,
    onRoots: (uris) =>
      warnOfFolders(
        serving,
        uris.filter(isFile).map((uri) => fileURLToPath(uri)),
        'root',
      ),
    amend: (answer) => withRemedy(answer, runs, serving),
  });
  await announce(serving, runs);
  const end = new End(output);
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

/** When the process has to end. A client sends SIGTERM, and kills it 2 s later. */
class End {
  #isUrgent = false;
  /** Resolves with the first signal, or once the client reads no more. */
  readonly asked: Promise<void>;

  constructor(output: Writable) {
    this.asked = new Promise((resolve) => {
      const ask = (): void => {
        this.#isUrgent = true;
        resolve();
      };
      for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, ask);
      output.once('close', ask);
    });
  }

  readonly isUrgent = (): boolean => this.#isUrgent;

  async until(ms: number, isDone: () => boolean): Promise<void> {
    const last = performance.now() + ms;
    while (!this.#isUrgent && !isDone() && performance.now() < last) await delay(10);
  }
}

/**
 * Standard output is the client's alone. All else that the process prints, such as the file of a
 * gate by `console.log`, goes to standard error.
 */
function takeOutput(): Writable {
  const { stdout, stderr } = process;
  const write = stdout.write.bind(stdout) as (
    bytes: Uint8Array,
    done: (e?: Error | null) => void,
  ) => boolean;
  stdout.write = stderr.write.bind(stderr);
  const output = new Writable({ write: (bytes: Uint8Array, _, done) => void write(bytes, done) });
  // The client reads no more: `close` follows.
  output.on('error', () => {});
  stdout.on('error', () => output.destroy());
  return output;
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

/** The types of file systems on other machines: NFS, SMB, SMB2 and CIFS (Linux, statfs(2)). */
const REMOTE: readonly number[] = [0x6969, 0x517b, 0xfe534d42, 0xff534d42];

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
  const database = sqliteFile(store);
  if (database !== undefined && process.platform === 'linux')
    if (REMOTE.includes(statfsSync(database).type))
      log.warn(`${database} is on another machine's disk, where SQLite's locks may not hold`);
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
  'The run is shared: each process of this user with this gate moves it, so that a checkout in one ' +
  'window opens pay in another one. --run NAME, or --run new, keeps processes apart.';
const GOES_ON =
  'The run goes on from earlier starts, and the server has begun anew. If it keeps in its memory ' +
  'what the run relies on, such as a cart, start with --run new.';

function instructionsOf({ file, keys }: Serving): string {
  const workflows = file.gates.map(({ id }) => id).join(', ');
  const isShared = 'kind' in keys && keys.kind === 'principal';
  const shared = ' It goes on from earlier conversations, and other windows of this user share it.';
  return (
    `[System: mcp-interlock lets calls through in the order that the workflow ${workflows} allows. ` +
    `A refusal says what to call first.${isShared ? shared : ''}]`
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
