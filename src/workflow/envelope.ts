/**
 * The envelope around a run's shared data: what the gate keeps in a snapshot's `context`. Hides how
 * versions of the package that use one store distinguish their formats.
 */
import { isTable } from '../basics/options.ts';
import type { FsmSnapshot, Json } from '../stores/store.ts';
import { FORMAT, MOVES } from './format.ts';

/**
 * The member that makes a context an envelope: the format that wrote it, and the lowest one that
 * may move the run.
 */
const FORMAT_KEY = 'mcp-interlock/format';

/**
 * What a run carries in its snapshot's `context`. It may have members that only a newer version
 * knows, so code that changes one member keeps all others.
 */
export interface Envelope {
  readonly [FORMAT_KEY]?: Json;
  /** The run's shared data; for a statechart its context. */
  readonly data?: Json;
  /** For each history state, by path: the paths of the states that it goes back to. */
  readonly history?: { readonly [path: string]: readonly string[] };
  /** The `version` of the gate that saved it. */
  readonly version?: number;
  /**
   * When the run entered its state, on the store's clock. Kept only where the state has a deadline
   * and something was saved in it since.
   */
  readonly entered?: number;
  /** The loop shield's counter. */
  readonly loop?: Json;
  /** How often each tool with `retries` has failed in this state. */
  readonly failures?: { readonly [tool: string]: number };
  /** The run's facts, as rules ask for them. */
  readonly 'mcp-interlock/facts'?: Json;
  /** Of a run that a gate does not enforce, or only in part. */
  readonly 'mcp-interlock/observed'?: Json;
}

/** The members of an envelope to make. Those that are `undefined` are left out. */
type Members = { readonly [Name in keyof Envelope]: Envelope[Name] | undefined };

/** Which versions of the package wrote an envelope, and may move its run. */
export interface Format {
  /** The format that wrote it; 0 where no gate did. */
  readonly written: number;
  /** The lowest format that may move the run. */
  readonly moves: number;
}

const NOT_WRITTEN: Format = { written: 0, moves: 0 };
const OWN: Format = { written: FORMAT, moves: MOVES };
const OWN_PAIR: Json = Object.freeze([FORMAT, MOVES]) as Json[];

/**
 * What a context holds. A context that does not name its format was written by no gate, so all of
 * it is the app's data.
 */
export function openContext(context: Json | undefined): Envelope {
  if (context === undefined) return {};
  return isTable(context) && Object.hasOwn(context, FORMAT_KEY) ? context : { data: context };
}

/**
 * The format of an envelope. What is no pair of numbers comes from a version that this one knows
 * nothing of, so no format is high enough.
 */
export function formatOf({ [FORMAT_KEY]: pair }: Pick<Members, typeof FORMAT_KEY>): Format {
  if (pair === undefined) return NOT_WRITTEN;
  const [written, moves] = Array.isArray(pair) ? pair : [];
  if (written === FORMAT && moves === MOVES) return OWN;
  return Number.isSafeInteger(written) && Number.isSafeInteger(moves)
    ? { written: Number(written), moves: Number(moves) }
    : { written: Number.POSITIVE_INFINITY, moves: Number.POSITIVE_INFINITY };
}

/**
 * The context that holds all this, written by this version. What a newer version added stays, and
 * with it the lowest format that may move the run.
 */
export function sealContext(envelope: Members): { readonly context: Json } {
  const { moves } = formatOf(envelope);
  const context: Record<string, Json> = {};
  for (const name of Object.keys(envelope) as (keyof Members)[]) {
    const value = envelope[name];
    if (value !== undefined) context[name] = value as Json;
  }
  context[FORMAT_KEY] = moves > MOVES ? [FORMAT, moves] : OWN_PAIR;
  return { context };
}

/**
 * The context to hand out where the app keeps a position itself. It is the bare data where the
 * context holds nothing else, or else the envelope.
 */
export function bareContext(context: Json | undefined): { readonly context?: Json } {
  const { [FORMAT_KEY]: _, data, ...rest } = openContext(context);
  if (Object.keys(rest).length > 0 && context !== undefined) return { context };
  return data === undefined ? {} : { context: data };
}

/** What each snapshot that was shown means. */
const behind = new WeakMap<FsmSnapshot, FsmSnapshot>();

/** The snapshot for people: its context is the run's data alone. */
export function shownSnapshot({ context, ...kept }: FsmSnapshot): FsmSnapshot {
  const envelope = openContext(context);
  const isKnown = formatOf(envelope).moves <= FORMAT;
  const { data } = isKnown ? envelope : {};
  const shown = { ...kept, ...(data !== undefined && { context: data }) };
  behind.set(shown, { ...kept, ...(context !== undefined && { context }) });
  return shown;
}

/** The snapshot behind a shown one; itself where it was not shown. */
export function snapshotBehind(shown: FsmSnapshot): FsmSnapshot {
  return behind.get(shown) ?? shown;
}
