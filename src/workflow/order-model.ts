/**
 * Rules as a machine, whose state is the set of what holds. Hides how such a set is written as a
 * text, and how it follows from the facts of a run and from the time.
 */

import { windowWords } from '../basics/clock.ts';
import { memoise, pushTo } from '../basics/collections.ts';
import type { Json } from '../stores/store.ts';
import { sealContext } from './envelope.ts';
import { bareCall, type Decided, type Facts } from './facts.ts';
import type { Ledger } from './ledger.ts';
import {
  atomsOf,
  type BoundState,
  type Changes,
  type EndKind,
  type EntryMove,
  holds,
  type MayChange,
  type Model,
  type Next,
  type Position,
} from './position.ts';
import type { Leaf } from './rule-parts.ts';
import { saidBy } from './rule-tests.ts';
import { marksIn, type Past } from './verdict.ts';

/** What may hold in a run: earlier calls of a tool that count for some rule. */
export interface Mark {
  /** As the state's text and words for models name it. */
  readonly name: string;
  readonly leaf: Leaf;
  readonly kind: 'after' | 'notAfter';
}

/** Which calls a success of a tool undoes, and which of those before it uses up. */
export interface Effect {
  /** The tools whose success it undoes. */
  readonly undoes: readonly string[];
  /** The tools whose calls a success uses up. */
  readonly uses: readonly string[];
  /** Those whose calls a failure uses up, too. */
  readonly usesOfCalls: readonly string[];
}

/** With more names than this, their combinations are too many to try out. */
const MOST_NAMES_TRIED = 10;

export class OrderModel implements Model {
  readonly id: string;
  readonly start: Position = Object.freeze({ state: textOf([]), ...sealContext({}) });
  readonly startActions = [];
  readonly names: readonly string[];
  readonly tags = [];
  readonly isFlat = false;
  readonly events: readonly string[];
  readonly deadlines = [];
  /** By tool. One whose success changes nothing has no entry. */
  readonly effects: ReadonlyMap<string, Effect>;
  readonly ledger: Ledger;
  readonly #tools: ReadonlySet<string>;
  readonly #places: ReadonlyMap<string, number>;
  readonly #marks = new Map<string, Mark[]>();
  readonly #named: ReadonlyMap<string, Mark>;
  readonly #changes = new Map<string, Changes>();

  /** @param tools in the order of the rules */
  constructor(
    id: string,
    tools: readonly string[],
    marks: readonly Mark[],
    effects: ReadonlyMap<string, Effect>,
    ledger: Ledger,
  ) {
    this.id = id;
    this.#tools = new Set(tools);
    for (const mark of marks) pushTo(this.#marks, mark.leaf.tool, mark);
    this.names = tools.flatMap((tool) => {
      const names = (this.#marks.get(tool) ?? []).map(({ name }) => name);
      return names.includes(tool) ? names : [tool, ...names];
    });
    this.#places = new Map(this.names.map((name, i) => [name, i]));
    this.#named = new Map(marks.map((mark) => [mark.name, mark]));
    this.events = Object.freeze([...effects.keys()]);
    this.effects = effects;
    this.ledger = ledger;
  }

  /** What a name in a state says of earlier calls; `undefined` for a name that is none here. */
  markOf(name: string): Mark | undefined {
    return this.#named.get(name);
  }

  /** All that states may name of a tool's calls. */
  marksOf(tool: string): readonly Mark[] {
    return this.#marks.get(tool) ?? [];
  }

  /** The state in which these names hold. */
  stateOf(names: ReadonlySet<string>): string {
    return this.#textOf(names);
  }

  deadline(): undefined {}

  has(state: string): boolean {
    const done = readText(state);
    if (done === undefined) return false;
    for (const name of done) {
      if (this.#named.has(name)) continue;
      const isQualified = [...this.#marks.keys()].some((tool) => name.startsWith(`${tool} `));
      if (!isQualified) return false;
    }
    return true;
  }

  mayStore(state: string): boolean {
    return readText(state) !== undefined;
  }

  isFinal(): boolean {
    return false;
  }

  doneIn(state: string): readonly string[] | undefined {
    return this.has(state) ? [...(readText(state) ?? [])] : undefined;
  }

  isIn(state: string, bound: readonly BoundState[]): boolean {
    const done = readText(state);
    return done !== undefined && isTrue(bound, done);
  }

  /** The events that would change anything. */
  eventsIn(state: string): readonly string[] {
    const done = readText(state);
    if (done === undefined) return [];
    return this.events.filter((event) => {
      const { adds, mayAdd, removes, mayRemove } = this.changesOf(event, 'succeeded');
      return (
        this.ledger.asksMore(event) ||
        adds.some((name) => !done.has(name)) ||
        mayAdd.some(({ name }) => !done.has(name)) ||
        removes.some((name) => done.has(name)) ||
        mayRemove.some(({ name }) => done.has(name))
      );
    });
  }

  handlers(event: string): readonly string[] {
    return this.effects.has(event) ? ['*'] : [];
  }

  canBeIn(bound: readonly BoundState[], names: readonly string[]): boolean {
    const atoms = [...bound, ...names].flatMap(atomsOf).filter((each) => typeof each === 'string');
    const tried = [...new Set(atoms)];
    if (tried.length > MOST_NAMES_TRIED) return true;
    for (let combination = 0; combination < 2 ** tried.length; combination++) {
      const done = new Set(tried.filter((_, i) => (combination >> i) % 2 === 1));
      if (isTrue(bound, done) && isTrue(names, done)) return true;
    }
    return false;
  }

  isStopped(): boolean {
    return false;
  }

  changesOf(tool: string, end: EndKind): Changes {
    const key = `${end} ${tool}`;
    const known = this.#changes.get(key);
    if (known !== undefined) return known;
    const changes = this.#changesOf(tool, end);
    this.#changes.set(key, changes);
    return changes;
  }

  /** `Ledger.decided()` does the same to the facts of a run, once they are known. */
  #changesOf(tool: string, end: EndKind): Changes {
    const { undoes, uses, usesOfCalls } = this.#effect(tool);
    const isFailure = end === 'failed';
    const adds: string[] = [];
    const mayAdd: MayChange[] = [];
    for (const { name, leaf, kind } of this.marksOf(tool)) {
      if (leaf.outcome === (isFailure ? 'succeeded' : 'failed')) continue;
      const { times, distinct, tests, outcome } = leaf;
      // The server may have refused its arguments.
      const mayBeInvalid = isFailure && kind === 'after' && outcome === 'any';
      // A call without a value there is none of different values.
      const isOne = tests.length === 0 && times === 1 && distinct === undefined;
      if (isOne && !mayBeInvalid) adds.push(name);
      else {
        const turn = tests.length > 0 || distinct !== undefined || isOne ? 'values' : 'a count';
        mayAdd.push({ name, turn, isUsual: kind === 'notAfter' || isOne });
      }
    }
    const removes: string[] = [];
    const mayRemove: MayChange[] = [];
    // An undone success leaves the calls that failed.
    for (const { name, leaf } of isFailure ? [] : undoes.flatMap((each) => this.marksOf(each)))
      if (leaf.outcome === 'succeeded') removes.push(name);
      else if (leaf.outcome === 'any') mayRemove.push({ name, turn: 'a count', isUsual: true });
    const used = end === 'succeeded' ? uses : isFailure ? usesOfCalls : [];
    // A run may have several calls of what is used up, so that some are left.
    for (const { name, leaf } of used.flatMap((each) => this.marksOf(each)))
      if (leaf.consumes !== 'never') mayRemove.push({ name, turn: 'a count', isUsual: false });
    return { adds, mayAdd, removes, mayRemove };
  }

  /** A name that is none here may have had a window in another deployment. */
  isTimed(name: string): boolean {
    return this.#named.get(name)?.leaf.withinMs !== Number.POSITIVE_INFINITY;
  }

  undoneBy(tool: string): readonly string[] {
    return this.#effect(tool).undoes;
  }

  standAt(position: Position, now: number, unknown: Past['unknown'] = []): Position {
    const state = this.#stateAt(this.ledger.read(position), now, unknown);
    return state === position.state ? position : { ...position, state };
  }

  /** Without a call, it is one of which only the tool is known, as late as the newest fact. */
  next(position: Position, event: string, _payload?: Json, call?: Decided): Next {
    if (!this.effects.has(event)) return { position, changed: false, handled: false, actions: [] };
    const facts = this.ledger.read(position);
    const at = call?.decidedAt ?? facts.newestAt;
    // A call of another tool, which is bound to send the event, is a success of the event's own.
    const made = call?.tool === event ? call : bareCall(event, at);
    const reached = this.decided(position, made);
    // What time alone has changed is no move of the call.
    const changed = reached.state !== this.#stateAt(facts, at);
    return { position: reached, changed, handled: true, actions: [] };
  }

  decided(position: Position, call: Decided): Position {
    const { tool, outcome, decidedAt: now } = call;
    const { undoes } = outcome === 'succeeded' ? this.#effect(tool) : NO_EFFECT;
    const facts = this.ledger.decided(this.ledger.read(position), call, undoes);
    return this.ledger.write({ ...position, state: this.#stateAt(facts, now) }, facts, now);
  }

  /** What the run did before, at a time. */
  pastOf(position: Position, now: number, unknown: Past['unknown'] = []): Past {
    return { ledger: this.ledger, facts: this.ledger.read(position), now, unknown };
  }

  /** The text of what holds at a time. */
  #stateAt(facts: Facts, now: number, unknown: Past['unknown'] = []): string {
    const done = new Set<string>();
    const holds = marksIn({ ledger: this.ledger, facts, now, unknown });
    const add = (tool: string): void => {
      for (const { name, leaf, kind } of this.#marks.get(tool) ?? [])
        if (!done.has(name) && holds(leaf, kind)) done.add(name);
    };
    for (const tool of facts.tools.keys()) add(tool);
    for (const { tool } of unknown) add(tool);
    return this.#textOf(done);
  }

  #textOf(done: ReadonlySet<string>): string {
    const placeOf = (name: string): number => this.#places.get(name) ?? 0;
    return textOf([...done].sort((a, b) => placeOf(a) - placeOf(b)));
  }

  mayBecome(before: string, after: string, move?: EntryMove): boolean {
    const [from, to] = [readText(before), readText(after)];
    if (from === undefined || to === undefined) return false;
    const expected = new Set(from);
    const open = new Set<string>();
    for (const { adds, mayAdd, removes, mayRemove } of this.#changesBy(move)) {
      for (const name of removes) expected.delete(name);
      for (const name of adds) expected.add(name);
      for (const { name } of [...mayAdd, ...mayRemove]) open.add(name);
    }
    return [...new Set([...expected, ...to])].every(
      (name) => expected.has(name) === to.has(name) || open.has(name) || this.isTimed(name),
    );
  }

  /** What a move may have changed, in order. A failure may count as another tool's success. */
  #changesBy({ event, tool, outcome }: EntryMove = { event: null }): readonly Changes[] {
    const isOwn = tool !== undefined && event === tool;
    const sent = event === null || isOwn ? [] : [this.changesOf(event, 'sent')];
    if (tool === undefined || (outcome !== undefined && outcome !== 'failed'))
      return isOwn ? [this.changesOf(tool, 'succeeded')] : sent;
    if (isOwn) return [this.changesOf(tool, 'succeeded')];
    return [this.changesOf(tool, 'failed'), ...sent];
  }

  #effect(event: string): Effect {
    return this.effects.get(event) ?? NO_EFFECT;
  }
}

const NO_EFFECT: Effect = { undoes: [], uses: [], usesOfCalls: [] };

/** How a mark is named: `get_balance within 2 minutes`, `approve 2 times by different approver`. */
export function markName(leaf: Leaf, kind: Mark['kind']): string {
  const { tool, outcome, withinMs, tests, times, distinct, fromMs } = leaf;
  const parts = [tool];
  if (outcome !== 'succeeded') parts.push(outcome === 'failed' ? 'failing' : 'called');
  if (times > 1) parts.push(`${times} times`);
  if (distinct !== undefined) parts.push(`by different ${distinct.path}`);
  for (const { from, key, ...test } of tests) {
    const said = saidBy(test);
    parts.push(
      `with ${from} ${typeof said === 'function' ? key : JSON.stringify(said).replaceAll('"', "'")}`,
    );
  }
  if (withinMs !== Number.POSITIVE_INFINITY)
    parts.push(`${kind === 'after' ? 'within' : 'in the last'} ${windowWords(withinMs)}`);
  else if (kind === 'notAfter' && fromMs === 0) parts.push('at any time');
  if (fromMs > 0) parts.push(`since ${new Date(fromMs).toISOString()}`);
  return parts.join(' ');
}

/** A name that needs no quotes. Other names are quoted, so that no two sets share a text. */
const PLAIN = /^[\w./:-]+$/;

/** A set of tools as one line: `{}`, `{checkout, verify_identity}`, `{"pay, then go"}`. */
function textOf(done: readonly string[]): string {
  return `{${done.map((name) => (PLAIN.test(name) ? name : JSON.stringify(name))).join(', ')}}`;
}

/** Reads what {@link textOf} wrote; `undefined` for any other text. */
const readText = memoise(
  (text): ReadonlySet<string> | undefined => {
    const names = namesOfText(text);
    if (names === undefined || textOf(names) !== text) return undefined;
    const done = new Set(names);
    return done.size < names.length ? undefined : done;
  },
  { most: 10_000 },
);

function namesOfText(text: string): string[] | undefined {
  const parts = /^\{(.*)\}$/s.exec(text)?.[1];
  if (parts === undefined) return undefined;
  if (parts === '') return [];
  try {
    return [...parts.matchAll(/"(?:[^"\\]|\\.)*"|[^," ]+/gs)].map(([part]) =>
      part.startsWith('"') ? String(JSON.parse(part)) : part,
    );
  } catch {
    return undefined;
  }
}

function isTrue(bound: readonly BoundState[], done: ReadonlySet<string>): boolean {
  return bound.some((each) => holds(each, (atom) => typeof atom === 'string' && done.has(atom)));
}
