/**
 * Where a run of rules of order stands: hides how the set of what is done is written as a state, and
 * how the calls are kept whose arguments must come again.
 */
import type { Json } from '../stores/store.ts';
import type { Position } from './position.ts';
import { openContext, sealContext } from './stored.ts';

/** More calls than these are not remembered of one tool: the oldest are forgotten. */
const MOST_CALLS = 64;

/** So many texts are kept as they were read. */
const MOST_TEXTS_KEPT = 10_000;

const read = new Map<string, ReadonlySet<string>>();

/** A name that stands in a text as it is; others are quoted, so that no two sets share a text. */
const PLAIN = /^[\w./:-]+$/;

/** A set of names as one line: `{}`, `{checkout, verify_identity}`, `{"pay, then go"}`. */
export function textOf(done: readonly string[]): string {
  return `{${done.map((name) => (PLAIN.test(name) ? name : JSON.stringify(name))).join(', ')}}`;
}

/** What {@link textOf} wrote; `undefined` for any other text. */
export function readText(text: string): ReadonlySet<string> | undefined {
  const known = read.get(text);
  if (known !== undefined) return known;
  const names = namesIn(text);
  if (names === undefined || textOf(names) !== text) return undefined;
  const done = new Set(names);
  if (done.size < names.length) return undefined;
  if (read.size >= MOST_TEXTS_KEPT) read.clear();
  read.set(text, done);
  return done;
}

function namesIn(text: string): string[] | undefined {
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

/** By one kind of sameness a call is known again: by the arguments with these names. */
export function kindOf(names: readonly string[]): string {
  return names.length === 1 ? String(names[0]) : JSON.stringify(names);
}

/** One call: a digest for each kind of sameness, `null` where an argument was missing. */
type Remembered = readonly (string | null)[];

/** The calls of one tool, the oldest first. */
interface CallsOfTool {
  readonly kinds: readonly string[];
  readonly calls: readonly Remembered[];
}

/** The calls that a run remembers the arguments of. */
export class RememberedCalls {
  readonly #tools: Map<string, CallsOfTool>;

  /** What a store gave may be anything: what is no call counts for nothing. */
  constructor({ context }: Position) {
    const { 'mcp-interlock/calls': kept } = openContext(context);
    const entries = Array.isArray(kept) ? kept : [];
    this.#tools = new Map(entries.flatMap((entry) => entryOf(entry)));
  }

  /** Whether a call of the tool is remembered with these values. */
  has(tool: string, kind: readonly string[], digest: string): boolean {
    const { kinds, calls } = this.#tools.get(tool) ?? NO_CALLS;
    const at = kinds.indexOf(kindOf(kind));
    return at !== -1 && calls.some((call) => call[at] === digest);
  }

  /** Remembers one more, or anew. */
  add(tool: string, kinds: readonly (readonly string[])[], call: Remembered): void {
    const named = kinds.map(kindOf);
    const before = this.#tools.get(tool) ?? NO_CALLS;
    const others = before.calls
      .map((each) => named.map((kind) => each[before.kinds.indexOf(kind)] ?? null))
      .filter((each) => each.some((digest, i) => digest !== call[i]));
    this.#tools.set(tool, { kinds: named, calls: [...others, call].slice(-MOST_CALLS) });
  }

  /** Forgets all calls of a tool. */
  forget(tool: string): void {
    this.#tools.delete(tool);
  }

  /**
   * Forgets those with these values: all where the values are not known, none where one is missing.
   *
   * @returns whether any call of the tool is left
   */
  use(tool: string, kind: readonly string[], digest: string | null | undefined): boolean {
    const { kinds, calls } = this.#tools.get(tool) ?? NO_CALLS;
    const at = kinds.indexOf(kindOf(kind));
    const isKept = (call: Remembered): boolean => digest === null || call[at] !== digest;
    const left = digest === undefined ? [] : calls.filter(isKept);
    if (left.length === 0) this.forget(tool);
    else this.#tools.set(tool, { kinds, calls: left });
    return left.length > 0;
  }

  /** A position with these calls in its context. */
  in({ state, context }: Position): Position {
    const tools = [...this.#tools].map(
      ([tool, { kinds, calls }]): Json => [tool, [...kinds], calls.map((call) => [...call])],
    );
    const kept = tools.length === 0 ? undefined : tools;
    const { 'mcp-interlock/calls': _, ...rest } = openContext(context);
    return { state, ...sealContext({ ...rest, ...(kept && { 'mcp-interlock/calls': kept }) }) };
  }
}

const NO_CALLS: CallsOfTool = { kinds: [], calls: [] };

function entryOf(entry: Json): [string, CallsOfTool][] {
  const [tool, kinds, calls] = Array.isArray(entry) ? entry : [];
  if (typeof tool !== 'string' || !Array.isArray(kinds) || !Array.isArray(calls)) return [];
  const isDigest = (each: Json): each is string | null => each === null || typeof each === 'string';
  const whole = calls.filter((call): call is (string | null)[] => {
    return Array.isArray(call) && call.every(isDigest);
  });
  return [[tool, { kinds: kinds.map(String), calls: whole }]];
}
