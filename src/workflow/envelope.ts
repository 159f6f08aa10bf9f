import { isTable } from '../options.ts';
import type { Json } from '../stores/store.ts';
import { jsonOf } from './json.ts';
import type { Position } from './position.ts';

/** What a run carries along in its snapshot's `context`, where there is anything to carry. */
export interface Envelope {
  /** The statechart's context; the run's shared data for all who read it. */
  readonly data?: Json;
  /** By the path of a history state: the paths of the states that it goes back to. */
  readonly history?: { readonly [path: string]: readonly string[] };
  /** The `version` of the gate that saved it. */
  readonly version?: number;
  /**
   * When the state was entered, where it has a deadline and something was saved in it since. On the
   * store's clock.
   */
  readonly entered?: number;
  /** The loop shield's counter. */
  readonly loop?: Json;
}

const KEYS = ['data', 'history', 'version', 'entered', 'loop'];

/** What the context holds. One that no gate has written is data as a whole. */
export function openContext(context: Json | undefined): Envelope {
  if (context === undefined) return {};
  if (isTable(context) && Object.keys(context).every((key) => KEYS.includes(key))) return context;
  return { data: context };
}

/** The context that holds this; none where there is nothing to hold. */
export function sealContext(envelope: Envelope): { readonly context?: Json } {
  const kept = KEYS.flatMap((key): [string, Json][] => {
    const value = envelope[key as keyof Envelope];
    return value === undefined ? [] : [[key, value as Json]];
  });
  return kept.length === 0 ? {} : { context: Object.fromEntries(kept) };
}

/** The same position with other data. @throws Error where it is no JSON */
export function withData(position: Position, data: Json | undefined): Position {
  const { data: _, ...rest } = openContext(position.context);
  const kept = data === undefined ? {} : { data: jsonOf(data, 'the context') };
  return { state: position.state, ...sealContext({ ...rest, ...kept }) };
}
