/**
 * The values of a recorded call, as rules read them. Hides that most of them are HMACs: rules can
 * compare those, and read nothing else of them.
 */
import { HIDDEN_NAME, type RecordedValues } from '../calls/calls.ts';
import type { Json } from '../stores/store.ts';
import { AskedArguments, NotRecorded } from '../workflow/bound-tools.ts';
import {
  keysOfPointer,
  MISSING,
  type Path,
  pointerTo,
  type Reader,
} from '../workflow/condition.ts';

/** In place of a value of which only an HMAC was recorded, or not even that. */
const UNREAD = Symbol('not recorded');

/** Reads the recorded values of one part of a call, and notes what they left open. */
export class RecordedReader {
  readonly #values: RecordedValues;
  /** Whether something was asked for that an HMAC does not say. */
  hasDoubt = false;

  constructor(values: RecordedValues = { hmacs: {} }) {
    this.#values = values;
  }

  /** For conditions and amounts; its `digests` are for comparisons. */
  readonly read: Reader = Object.defineProperty(
    Object.assign((keys: Path) => this.#valueAt(keys), {
      digests: (keys: Path) => this.#digestsAt(keys),
    }),
    'claims',
    { get: () => this.claims },
  );

  /** All values as the call had them; `undefined` where not all are in clear. */
  get whole(): Json | undefined {
    const { hmacs, clear = {}, isCut } = this.#values;
    // Mostly nothing is in clear.
    const hasAny = Object.keys(hmacs).length === 0 || Object.keys(clear).length > 0;
    if (isCut || !hasAny) return undefined;
    const whole: Record<string, Json> = Object.create(null);
    for (const pointer of Object.keys(hmacs)) {
      if (hasMembers(hmacs, pointer)) continue;
      if (!Object.hasOwn(clear, pointer) || pointer === '') return undefined;
      const keys = keysOfPointer(pointer);
      let inner = whole;
      for (const key of keys.slice(0, -1)) {
        inner[key] ??= Object.create(null);
        inner = inner[key] as Record<string, Json>;
      }
      inner[keys.at(-1) ?? ''] = clear[pointer] as Json;
    }
    return JSON.parse(JSON.stringify(whole)) as Json;
  }

  /** What is claimed of callers is in no recording. */
  get claims(): undefined {
    this.hasDoubt = true;
    return undefined;
  }

  #valueAt(keys: Path): unknown {
    const { hmacs, clear = {} } = this.#values;
    const pointer = pointerTo(keys);
    if (Object.hasOwn(clear, pointer)) return clear[pointer];
    if (hmacs[pointer] !== undefined && String(hmacs[pointer]).startsWith('z')) return null;
    if (!Object.hasOwn(hmacs, pointer) && !this.#isBeyond(keys)) return MISSING;
    this.hasDoubt = true;
    return UNREAD;
  }

  #digestsAt(keys: Path): string | readonly string[] | typeof MISSING | undefined {
    const { hmacs } = this.#values;
    const pointer = pointerTo(keys);
    if (!Object.hasOwn(hmacs, pointer)) {
      // Values were recorded one by one, and not all of them together.
      if (keys.length > 0 && !this.#isBeyond(keys)) return MISSING;
      this.hasDoubt = true;
      return undefined;
    }
    const found = hmacs[pointer];
    if (typeof found === 'string') return isOfObject(found) ? [found] : found;
    return found === undefined || found.length === 0 ? undefined : found;
  }

  /** Whether the call may have a member there that was not recorded. */
  #isBeyond(keys: Path): boolean {
    const { hmacs, isCut } = this.#values;
    if (isCut) return true;
    for (let length = keys.length - 1; length >= 0; length--) {
      const around = pointerTo(keys.slice(0, length));
      if (Array.isArray(hmacs[around])) return true;
      const hidden = `${around}/${HIDDEN_NAME}`;
      if (Object.keys(hmacs).some((each) => each.startsWith(hidden))) return true;
    }
    return false;
  }
}

/** The arguments of a recorded call. Functions of the app can read them only if all are clear. */
export class RecordedArguments extends AskedArguments {
  override readonly read: Reader;
  /** As {@link RecordedReader.whole}. */
  readonly whole: Json | undefined;

  constructor(reader: RecordedReader) {
    const { whole } = reader;
    super(whole ?? {});
    this.whole = whole;
    this.read = reader.read;
  }

  override get view(): unknown {
    if (this.whole === undefined) throw new NotRecorded();
    return super.view;
  }
}

/** Rules take an object for a list of itself. One with a rounded number has two digests. */
function isOfObject(hmac: string): boolean {
  return hmac.startsWith('o') || (hmac.startsWith('r') && hmac.includes('o', 22));
}

/** Whether it is an object whose members were recorded too. */
function hasMembers(hmacs: RecordedValues['hmacs'], pointer: string): boolean {
  if (pointer === '') return Object.keys(hmacs).length > 1;
  return Object.keys(hmacs).some((each) => each.startsWith(`${pointer}/`));
}
