/**
 * Plays the checkout with each scripted client, on each mount that the docs name for it, and prints
 * who reaches `cart_pay`. `--help` says how.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Client, type Era, type Habit, type Outcome, UNKNOWN_NAME } from './clients.ts';
import {
  behindTheCommand,
  inProcess,
  MOUNTS,
  type MountName,
  OpenShop,
  onTwoInstances,
  type Place,
} from './mounts.ts';

const HELP = `npm run zoo -- [options]

  --client TEXT  only clients whose name has this text
  --record       records how each play ends, and renews the table of docs/start/clients.md
`;

const RECORDED = fileURLToPath(new URL('./recorded.json', import.meta.url));
const PAGE = fileURLToPath(new URL('../../docs/start/clients.md', import.meta.url));
const BEGIN = '<!-- zoo -->';
const END = '<!-- /zoo -->';

const SESSIONS = '2025-11-25';
const STATELESS = '2026-07-28';

interface Entry extends Habit {
  /** The mounts that the docs name for it, in each era that it can speak. */
  readonly [SESSIONS]?: readonly MountName[];
  readonly [STATELESS]?: readonly MountName[];
}

/** Each has one habit, but for the last two: those are what two products do together. */
export const CLIENTS: readonly Entry[] = [
  {
    name: 'keeps its session, lists when notified',
    [SESSIONS]: ['readme', 'handle'],
    [STATELESS]: ['readme', 'handle'],
  },
  {
    name: 'the same, with a token',
    token: true,
    [SESSIONS]: ['principal'],
    [STATELESS]: ['readme', 'principal'],
  },
  { name: 'a session for each call', session: 'call', [SESSIONS]: ['readme', 'handle'] },
  {
    name: 'a session for each call, with a token',
    session: 'call',
    token: true,
    [SESSIONS]: ['readme', 'user'],
  },
  {
    name: 'a session for each call, with a conversation',
    session: 'call',
    conversation: true,
    [SESSIONS]: ['readme', 'conversation', 'handle'],
  },
  {
    name: 'a session for each call, with both',
    session: 'call',
    token: true,
    conversation: true,
    [SESSIONS]: ['readme', 'user'],
  },
  {
    name: 'lists once, and is known for it',
    clientInfo: 'codex-mcp-client',
    lists: 'once',
    token: true,
    [SESSIONS]: ['readme', 'stable'],
    [STATELESS]: ['principal'],
  },
  {
    name: 'lists once, under an SDK’s name',
    clientInfo: 'mcp',
    lists: 'once',
    [SESSIONS]: ['readme', 'stable'],
    [STATELESS]: ['handle'],
  },
  {
    name: 'lists once, calls what it reads',
    lists: 'once',
    callsWhatItReads: true,
    onStuck: 'reopens',
    [SESSIONS]: ['readme', 'announce'],
  },
  {
    name: 'lists before each call',
    lists: 'before each call',
    token: true,
    [SESSIONS]: ['readme'],
    [STATELESS]: ['principal'],
  },
  {
    name: 'discovers first',
    discovers: true,
    token: true,
    [SESSIONS]: ['readme'],
    [STATELESS]: ['principal'],
  },
  {
    name: 'two calls in one turn',
    twoAtOnce: true,
    token: true,
    [SESSIONS]: ['stable', 'order'],
    [STATELESS]: ['principal'],
  },
  {
    name: 'repeats what it does not like',
    onRefusal: 'repeats',
    beginsWith: 'cart_pay',
    token: true,
    [SESSIONS]: ['stable'],
    [STATELESS]: ['principal'],
  },
  {
    name: 'ignores `isError`',
    onRefusal: 'goes on',
    token: true,
    [SESSIONS]: ['stable'],
    [STATELESS]: ['readme', 'principal'],
  },
  {
    name: 'drops its stream, and asks again',
    hangsUp: true,
    token: true,
    [SESSIONS]: ['readme'],
    [STATELESS]: ['principal'],
  },
  {
    name: 'DELETE at the end of each turn',
    session: 'turn',
    token: true,
    [SESSIONS]: ['readme', 'user'],
  },
  {
    name: 'begins anew after 404',
    onLostSession: 'begins anew',
    token: true,
    [SESSIONS]: ['readme', 'user'],
  },
  {
    name: 'gives up after 404',
    onLostSession: 'gives up',
    token: true,
    [SESSIONS]: ['readme', 'user'],
  },
  {
    name: 'as ChatGPT',
    clientInfo: 'openai-mcp',
    session: 'call',
    lists: 'once',
    token: true,
    conversation: true,
    [SESSIONS]: ['readme', 'user'],
  },
  {
    name: 'as claude.ai',
    clientInfo: 'Anthropic/ClaudeAI',
    session: 'call',
    lists: 'once',
    discovers: true,
    token: true,
    [SESSIONS]: ['readme', 'user'],
  },
];

/** How a play ended. */
export interface Row extends Outcome {
  readonly client: string;
  readonly era: Era;
  readonly mount: MountName;
  readonly place: string;
  /** Where it is stuck: whether the operator was told a line that serves this client. */
  readonly told?: boolean;
}

/** What serves a client that is stuck, as the gate or the command names it to an operator. */
const A_CURE = /principalKey\(|managedHandle\(|conversationKey\(|--key |visibility|\.resolve\(/;

/** Whether a line of what the operator was told names what serves this client. */
const servesIn = (told: string, era: Era, name: string): boolean =>
  told.split('\n').some(
    (line) =>
      A_CURE.test(line) &&
      // Without sessions the mount serves no client, and a held run is no client's.
      (era === STATELESS ||
        line.includes('.resolve(') ||
        line.replaceAll('\\', '').includes(`"${name}"`)),
  );

/** Plays each client whose name has this text, in all places. */
export async function playZoo(text = ''): Promise<readonly Row[]> {
  const places = await Promise.all([inProcess(), behindTheCommand(), onTwoInstances()]);
  try {
    const plays = CLIENTS.filter(({ name }) => name.includes(text)).flatMap((entry) =>
      ([SESSIONS, STATELESS] as const).flatMap((era) =>
        (entry[era] ?? []).flatMap((mount) =>
          places.map((place) => ({ entry, era, mount, place })),
        ),
      ),
    );
    const rows = new Map<number, Row>();
    // A call that was cut off waits for its lease: those plays begin first.
    const queue = [...plays.entries()].sort(
      ([, one], [, other]) => Number(other.entry.hangsUp ?? 0) - Number(one.entry.hangsUp ?? 0),
    );
    const work = async (): Promise<void> => {
      for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
        const [at, { entry, era, mount, place }] = next;
        const row = await play(entry, era, mount, place);
        if (row !== undefined) rows.set(at, row);
      }
    };
    await Promise.all(Array.from({ length: 2 * availableParallelism() }, work));
    return [...rows].sort(([one], [other]) => one - other).map(([, row]) => row);
  } finally {
    await Promise.all(places.map((place) => place.close()));
  }
}

async function play(
  habit: Habit,
  era: Era,
  mount: MountName,
  place: Place,
): Promise<Row | undefined> {
  const shop = new OpenShop();
  const served = await place.serve(mount, shop);
  if (served === undefined) return undefined;
  try {
    const { urls } = served;
    const { name: client, clientInfo = UNKNOWN_NAME } = habit;
    const isTold = async () => servesIn(await served.told(), era, clientInfo);
    const outcome = await new Client(habit, { urls, shop, era, token: place.token, isTold }).run();
    const told = await isTold();
    return { client, era, mount, place: place.name, ...outcome, ...(!outcome.paid && { told }) };
  } finally {
    await served.close();
  }
}

/** The rows that ended otherwise than recorded, in words. */
export function differences(played: readonly Row[], recorded: readonly Row[]): readonly string[] {
  const nameOf = ({ client, era, mount, place }: Row) => [client, era, mount, place].join(', ');
  const wanted = new Map(recorded.map((row) => [nameOf(row), endOf(row)]));
  return played.flatMap((row) => {
    const was = wanted.get(nameOf(row)) ?? 'not played';
    return was === endOf(row) ? [] : [`${nameOf(row)}: ${endOf(row)}; recorded: ${was}`];
  });
}

function endOf({ paid, calls, stuck, told, tries }: Row): string {
  if (paid) return `pays in ${calls} calls, in try ${tries}`;
  const end = told ? `The operator is told in try ${tries}.` : 'Nothing is told.';
  return `stuck after ${calls}: ${stuck} ${end}`;
}

export const recordedRows = (): readonly Row[] =>
  JSON.parse(readFileSync(RECORDED, 'utf8')) as readonly Row[];

/** The table for the docs. Places where a client ends alike share a row. */
export function tableOf(rows: readonly Row[]): string {
  const lines = new Map<string, string[]>();
  for (const row of rows) {
    const { client, era, mount, paid, calls, stuck, told, tries } = row;
    const when = tries === 1 ? 'at once' : `in try ${tries}`;
    const end = paid ? `pays in ${calls} calls` : `**stuck**: ${stuck} | ${told ? when : 'no'}`;
    const line = `| ${client} | ${era} | ${MOUNTS[mount].lines} | ${paid ? `${end} |` : end} |`;
    lines.set(line, [...(lines.get(line) ?? []), row.place]);
  }
  const table = [...lines].map(([line, places]) => line.replace(/\|$/, `| ${whereOf(places)} |`));
  return [
    '| client | era | mount | the way ends | the operator reads a cure | where |',
    '|---|---|---|---|---|---|',
    ...table,
  ].join('\n');
}

const whereOf = (places: readonly string[]): string =>
  places.length === 3 ? 'everywhere' : places.join(', ');

/** The table as the page has it, and what stands around it. */
function pageParts(): [before: string, table: string, after: string] {
  const page = readFileSync(PAGE, 'utf8');
  const from = page.indexOf(BEGIN) + BEGIN.length;
  const to = page.indexOf(END);
  return [page.slice(0, from), page.slice(from, to).trim(), page.slice(to)];
}

export const tableOfPage = (): string => pageParts()[1];

async function main(args: readonly string[]): Promise<number> {
  const { values } = parseArgs({
    args: [...args],
    options: {
      help: { type: 'boolean', default: false },
      client: { type: 'string', default: '' },
      record: { type: 'boolean', default: false },
    },
  });
  if (values.help) {
    console.log(HELP);
    return 0;
  }
  const rows = await playZoo(values.client);
  console.log(tableOf(rows));
  const unserved = rows.filter(({ paid, told }) => !paid && !told);
  console.log(
    `\n${rows.length} plays, ${rows.filter(({ paid }) => paid).length} paid. ` +
      `${unserved.length} are stuck without a word to the operator.`,
  );
  if (values.record && values.client === '') {
    writeFileSync(RECORDED, `${JSON.stringify(rows, null, 2)}\n`);
    const [before, , after] = pageParts();
    writeFileSync(PAGE, `${before}\n\n${tableOf(rows)}\n\n${after}`);
    return 0;
  }
  const found = differences(rows, recordedRows());
  for (const each of found) console.log(each);
  console.log(found.length === 0 ? 'AS RECORDED' : `${found.length} PLAYS ENDED OTHERWISE`);
  return found.length === 0 && unserved.length === 0 ? 0 : 1;
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  process.exit(await main(process.argv.slice(2)));
