/**
 * Recorded calls: what one line of such a file is. Hides how a line is written and read, and that a
 * file may have been cut, or be of another version.
 */
import { isTable } from '../basics/options.ts';
import type { Json } from '../stores/store.ts';

/** No JSON Pointer has it: there `0` or `1` follows a `~` (RFC 6901). */
export const HIDDEN_NAME = '~h';

/** In the first line that each recording process writes. */
export const CALLS_FORMAT = 'mcp-interlock/calls';
/** Of the lines. A reader refuses a file of another version. */
export const CALLS_VERSION = 1;

/**
 * The values of a call's arguments, or of its result, by JSON Pointer (RFC 6901). A result is read
 * as rules read it: its `structuredContent`, or else its only text, where that is JSON.
 */
export interface RecordedValues {
  /**
   * By pointer: the first letter of the value's JSON type (`s`, `n`, `b`, `o`; `z` for null; `r`
   * for a number that JavaScript rounds), and its HMAC. Of a list an array of its members' ones.
   * Equal values have equal texts, under any name. In a pointer, {@link HIDDEN_NAME} and an HMAC
   * replace a name that neither the tool's schema nor the app lets through.
   */
  readonly hmacs: Readonly<Record<string, string | readonly string[]>>;
  /** By pointer: the values that the app lets through in clear. */
  readonly clear?: Readonly<Record<string, Json>>;
  /** Whether it has more values than are recorded. */
  readonly isCut?: boolean;
}

/** In every line. */
interface OfLine {
  /** Names the process. Its lines, by `seq`, are in the order in which it saw them. */
  readonly instance: string;
  readonly seq: number;
  /** Milliseconds since the epoch, by the clock of that process. */
  readonly at: number;
}

/** The first line of a process. */
export interface RecordingLine extends OfLine {
  readonly type: 'recording';
  readonly format: typeof CALLS_FORMAT;
  readonly version: typeof CALLS_VERSION;
  /** Whose clock `at` is by. */
  readonly clock: 'process';
  /** The same in all files whose HMACs can be compared. It does not give the key away. */
  readonly key: string;
}

/** A call came. */
export interface StartLine extends OfLine {
  readonly type: 'start';
  /** Unique in its process. */
  readonly call: number;
  readonly tool: string;
  /** `runDigest()` of the run's key. Absent where nothing names the run. */
  readonly run?: string;
  /** Whether it is the run of a principal, which begins anew with the call after its end. */
  readonly isPrincipal?: boolean;
  /** The name that the client gives itself, which may be any. */
  readonly client?: string;
  readonly args?: RecordedValues;
}

/** How a call ended: as {@link ToolAnswer} says. */
export type RecordedOutcome =
  | 'ok'
  | 'tool_error'
  | 'rpc_error'
  | 'refused'
  | 'unknown'
  | 'unanswered';

/** A call was answered, or was not. */
export interface EndLine extends OfLine {
  readonly type: 'end';
  readonly call: number;
  readonly outcome: RecordedOutcome;
  /** Why a gate refused it. */
  readonly reason?: string;
  /** Of a JSON-RPC error. */
  readonly code?: number;
  /** What an `ok` result leaves open: the server asks for an input, or has created a task. */
  readonly left?: 'input' | 'task';
  /** Absent where the result has no values that rules could read. */
  readonly result?: RecordedValues;
}

/** So many lines were dropped here, since more came than could be written. */
export interface DroppedLine extends OfLine {
  readonly type: 'dropped';
  readonly lines: number;
}

export type RecordedLine = RecordingLine | StartLine | EndLine | DroppedLine;

/** What a reader of recorded calls learns of lines that are none. */
export interface UnreadableLine {
  readonly type: 'unreadable';
  /** From 1 on. */
  readonly line: number;
  readonly reason: string;
}

/** Names a call in a whole recording. */
export function callIn({ instance, call }: StartLine | EndLine): string {
  return `${instance} ${call}`;
}

/** Sorts lines as they happened. The clocks of several processes may differ. */
export function byTime(one: RecordedLine, other: RecordedLine): number {
  return one.instance === other.instance ? one.seq - other.seq : one.at - other.at;
}

const OUTCOMES: ReadonlySet<string> = new Set<RecordedOutcome>([
  ...(['ok', 'tool_error', 'rpc_error', 'refused', 'unknown', 'unanswered'] as const),
]);

/** Reads one line. The last line of a file may be cut off: its process ended while writing it. */
export function parseCallLine(text: string, line: number): RecordedLine | UnreadableLine {
  const not = (reason: string): UnreadableLine => ({ type: 'unreadable', line, reason });
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return not('it is no JSON');
  }
  if (!isTable(value)) return not('it is no JSON object');
  const { type, instance, seq, at } = value;
  if (typeof instance !== 'string' || typeof seq !== 'number' || typeof at !== 'number')
    return not('it has no "instance", "seq" and "at"');
  const isRight = typeof type === 'string' && Object.hasOwn(IS_LINE, type);
  if (!isRight) return not(`its "type" is ${JSON.stringify(type)}`);
  if (type === 'recording' && value.format === CALLS_FORMAT && value.version !== CALLS_VERSION)
    return not(`it is of version ${JSON.stringify(value.version)}, and this is ${CALLS_VERSION}`);
  if (!IS_LINE[type as RecordedLine['type']](value)) return not(`it is no "${type}" line`);
  return value as unknown as RecordedLine;
}

type Members = Readonly<Record<string, unknown>>;

const IS_LINE: Readonly<Record<RecordedLine['type'], (value: Members) => boolean>> = {
  recording: ({ format, version, key }) =>
    format === CALLS_FORMAT && version === CALLS_VERSION && typeof key === 'string',
  start: ({ call, tool, run, client, args }) =>
    typeof call === 'number' &&
    typeof tool === 'string' &&
    isTextOrAbsent(run) &&
    isTextOrAbsent(client) &&
    areValuesOrAbsent(args),
  end: ({ call, outcome, result }) =>
    typeof call === 'number' &&
    typeof outcome === 'string' &&
    OUTCOMES.has(outcome) &&
    areValuesOrAbsent(result),
  dropped: ({ lines }) => typeof lines === 'number',
};

function isTextOrAbsent(value: unknown): boolean {
  return value === undefined || typeof value === 'string';
}

function areValuesOrAbsent(value: unknown): boolean {
  if (value === undefined) return true;
  if (!isTable(value) || !isTable(value.hmacs)) return false;
  return value.clear === undefined || isTable(value.clear);
}
