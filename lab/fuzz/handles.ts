import * as fc from 'fast-check';
import { handleKey, managedHandle, StateMachineGate } from '../../src/index.ts';
import { Door, refusalIn, STATELESS, saysOfItself } from './door.ts';
import { broken, type OpenTarget, type Target } from './target.ts';

/** As JSON text. Some are no handle, some name the same one, and some try to look like a key. */
const VALUES = [
  ...['"a"', '"\\u0061"', '"A"', '"a "', '" a"', '"a\\u0000"', '"a\\u0000b"', '"\\ud83d"', '""'],
  ...['"é"', '"e\u0301"', '"__proto__"', '"constructor"', '"null"', '"true"', '"[object Object]"'],
  ...['7', '7.0', '70e-1', '"7"', '"07"', '"7.0"', '7.5', '-0', '0', '"0"', '-7', '1e400'],
  ...['1234567890123456789', '"1234567890123456789"', '9007199254740991', '9007199254740993'],
  ...['6.9999999999999999999', '7.00000000000000000001', '1e-400'],
  ...['null', 'true', '{}', '[]', '["a"]', '[7]', '{"toString":"a"}'],
  ...['"a\\",null,\\"b"', '"[\\"cart\\",null,\\"a\\"]"', '"handle [\\"cart\\",null,\\"a\\"]"'],
  ...['"principal ann"', '"ann\\",\\"a"'],
  JSON.stringify('x'.repeat(1_024)),
  JSON.stringify('x'.repeat(1_025)),
];
/** Members that a careless reader may take for the handle. */
const DOUBTFUL = [
  '"cart":"a","cart":"b"',
  '"cart":"a","Cart":"b"',
  '"CART":"a"',
  '"cart\\u0000":"a","cart":"b"',
  '"__proto__":{"cart":"a"}',
];
const USERS = [undefined, 'ann', 'bob', 'ann","a', '["https://i","ann"]', 'null', ' ann'];

/** Names a handle: one of the values, or one that the gate made, changed in some way. */
const named = fc.oneof(
  { weight: 6, arbitrary: fc.record({ text: fc.constantFrom(...VALUES) }) },
  { weight: 1, arbitrary: fc.record({ members: fc.constantFrom(...DOUBTFUL, '') }) },
  {
    weight: 4,
    arbitrary: fc.record({
      made: fc.nat(5),
      change: fc.constantFrom('none', 'none', 'none', 'cut', 'longer', 'case', 'in a list'),
    } as const),
  },
);
type Named = typeof named extends fc.Arbitrary<infer T> ? T : never;
const command = fc.record({
  kind: fc.constantFrom('make', 'make', 'add', 'add', 'pay', 'list'),
  user: fc.oneof({ weight: 3, arbitrary: fc.nat(1) }, fc.nat(USERS.length - 1)),
  named,
} as const);
type Command = typeof command extends fc.Arbitrary<infer T> ? T : never;
const play = fc.record({
  kind: fc.constantFrom('handle', 'managed'),
  era: fc.constantFrom('session', 'stateless'),
  commands: fc.array(command, { minLength: 6, maxLength: 30, size: 'max' }),
} as const);
type Play = typeof play extends fc.Arbitrary<infer T> ? T : never;

/**
 * Each handle of each caller has a run of its own; a value that names none moves none. The model is
 * a table of runs.
 */
export const handles: Target = {
  name: 'handles',
  what: 'a handle names one run, of its caller alone, and nothing that looks like it names that run',
  inputs: 35,
  async open(): Promise<OpenTarget> {
    return { property: fc.asyncProperty(play, playOut), describe, close: async () => {} };
  },
};

async function playOut({ kind, era, commands }: Play): Promise<void> {
  const game = new Game(kind, era);
  for (const each of commands) await game.play(each);
}

type State = 'empty' | 'filled' | 'paid';

class Game {
  readonly #key: ReturnType<typeof handleKey> | ReturnType<typeof managedHandle>;
  readonly #era: Play['era'];
  readonly #door: Door;
  /** By user and handle. */
  readonly #runs = new Map<string, State>();
  /** As JSON text. */
  readonly #made: string[] = [];
  readonly #sessions = new Map<number, Record<string, string>>();
  #begun = 0;

  constructor(kind: Play['kind'], era: Play['era']) {
    this.#era = era;
    this.#key =
      kind === 'managed'
        ? managedHandle({ start: 'cart.new', argument: 'cart' })
        : handleKey('cart', { createdBy: 'cart.new' });
    const gate = new StateMachineGate({
      id: 'cart',
      initial: 'empty',
      states: {
        empty: { on: { ADD: 'filled' } },
        filled: { on: { PAY: 'paid' } },
        paid: { type: 'final' },
      },
    })
      .bindTool('cart.add', 'empty', 'ADD')
      .bindTool('cart.pay', 'filled', 'PAY');
    const principal = ({ headers }: { headers: Record<string, unknown> }) =>
      typeof headers['x-user'] === 'string' ? decodeURIComponent(headers['x-user']) : undefined;
    this.#door = new Door({
      gate,
      sessions: { key: this.#key, principal },
      answer: ({ message, headers }) => {
        const { params } = message;
        // Where handles name runs, the sessions are the upstream's own.
        if (message.method === 'initialize') headers.set('mcp-session-id', `s-${this.#begun++}`);
        if (message.method === 'tools/list')
          return {
            resultType: 'complete',
            tools: TOOLS.map((name) => ({ name, inputSchema: { type: 'object' } })),
          };
        const cart = params?.name === 'cart.new' ? { cart: params.arguments.value } : {};
        return { resultType: 'complete', content: [], structuredContent: cart };
      },
    });
  }

  async play({ kind, user, named: which }: Command): Promise<void> {
    if (kind === 'make') return this.#make(user, which);
    if (kind === 'list') return this.#list(user);
    const members = this.#membersOf(which);
    const tool = `cart.${kind}`;
    const handle = this.#handleIn(members);
    const run = handle === undefined ? undefined : runOf(user, handle);
    const state = run === undefined ? undefined : this.#runs.get(run);
    const isAllowed = state === (kind === 'add' ? 'empty' : 'filled');
    const before = this.#door.ran.length;
    const answer = await this.#ask(user, 'tools/call', `"name":"${tool}","arguments":{${members}}`);
    const call = this.#door.ran[before];
    if ((call !== undefined) !== isAllowed)
      broken(
        `a call was ${isAllowed ? 'refused' : 'forwarded'} against its run's state`,
        `${tool} of {${members}} by ${USERS[user]}, which is ${state ?? 'no run'}: ${answer.text}`,
      );
    if (call !== undefined && 'cart' in call.args !== (this.#key.kind === 'handle'))
      broken('the upstream got another handle than it has to', JSON.stringify(call.args));
    const isDoubtful = DOUBTFUL.includes(members);
    if (state === undefined && !isDoubtful && refusalIn(answer) !== 'no-run')
      broken('a call without a run was refused for another reason', answer.text);
    if (isAllowed && run !== undefined) this.#runs.set(run, kind === 'add' ? 'filled' : 'paid');
  }

  async #make(user: number, which: Named): Promise<void> {
    const text = 'text' in which ? which.text : '"a"';
    const answer = await this.#ask(
      user,
      'tools/call',
      `"name":"cart.new","arguments":{"value":${text}}`,
    );
    const made: unknown = answer.message?.result?.structuredContent?.cart;
    const handle = handleOf(made);
    if (this.#key.kind === 'managed' && (typeof made !== 'string' || made.length < 32))
      broken('the start tool made no handle', answer.text);
    if (handle === undefined) return;
    if (this.#key.kind === 'managed') {
      if (this.#made.includes(JSON.stringify(made))) broken('a handle was made twice');
      this.#made.push(JSON.stringify(made));
    }
    // A handle that the upstream makes again keeps its run.
    const run = runOf(user, handle);
    if (!this.#runs.has(run)) this.#runs.set(run, 'empty');
  }

  async #list(user: number): Promise<void> {
    const { message } = await this.#ask(user, 'tools/list', '');
    const names: string[] = message.result.tools.map(({ name }: { name: string }) => name);
    // No list can know which run is meant, so it shows every tool.
    const expected = [...(this.#key.kind === 'managed' ? ['cart.new'] : []), ...TOOLS];
    if (String(names) !== String(expected))
      broken('a list has other tools than the upstream and the start tool', String(names));
  }

  #membersOf(which: Named): string {
    if ('members' in which) return which.members;
    if ('text' in which) return `"cart":${which.text}`;
    const made = this.#made[which.made];
    if (made === undefined) return '"cart":"a"';
    const text: string = JSON.parse(made);
    switch (which.change) {
      case 'none':
        return `"cart":${made}`;
      case 'cut':
        return `"cart":${JSON.stringify(text.slice(0, -1))}`;
      case 'longer':
        return `"cart":${JSON.stringify(`${text}\0`)}`;
      case 'case':
        return `"cart":${JSON.stringify(text.toUpperCase())}`;
      case 'in a list':
        return `"cart":[${made}]`;
    }
  }

  #handleIn(members: string): string | undefined {
    if (members === '' || DOUBTFUL.includes(members)) return undefined;
    const [, text = ''] = /^"cart":(.*)$/s.exec(members) ?? [];
    // One that JavaScript rounds is no handle.
    if (ROUNDED.includes(text)) return undefined;
    return handleOf(JSON.parse(text));
  }

  async #ask(user: number, method: string, params: string) {
    const name = USERS[user];
    const own: Record<string, string> =
      name === undefined ? {} : { 'x-user': encodeURIComponent(name) };
    if (this.#era === 'session') {
      const session = this.#sessions.get(user) ?? (await this.#door.begin(own));
      this.#sessions.set(user, session);
      return this.#door.ask(method, `{${params}}`, session);
    }
    const tool = /^"name":"([\w.]+)"/.exec(params)?.[1];
    const headers = {
      ...own,
      'mcp-protocol-version': STATELESS,
      'mcp-method': method,
      ...(tool !== undefined && { 'mcp-name': tool }),
    };
    const meta = `"_meta":${JSON.stringify(saysOfItself())}`;
    return this.#door.ask(method, `{${params === '' ? meta : `${params},${meta}`}}`, headers);
  }
}

const TOOLS = ['cart.add', 'cart.pay', 'cart.view'];
const ROUNDED = ['6.9999999999999999999', '7.00000000000000000001', '1e-400'];

function runOf(user: number, handle: string): string {
  return JSON.stringify([USERS[user] ?? null, handle]);
}

/** The docs: a string of 1 to 1,024 characters, or a safe integer, which is its text. */
function handleOf(value: unknown): string | undefined {
  if (typeof value === 'number') return Number.isSafeInteger(value) ? String(value) : undefined;
  const isText = typeof value === 'string' && value !== '' && value.length <= 1_024;
  return isText ? value : undefined;
}

function describe({ kind, era, commands }: Play): string {
  const shown = commands.map(
    ({ kind: does, user, named: which }) => `  ${USERS[user]}: ${does} ${JSON.stringify(which)}`,
  );
  return [`  ${kind}, ${era}`, ...shown].join('\n');
}
