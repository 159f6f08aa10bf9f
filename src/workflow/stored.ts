/**
 * Runs as stores keep them: hides how the runs of other deployments, and deadlines, are understood.
 */
import * as z from 'zod/mini';
import { InterlockError } from '../basics/errors.ts';
import { ownText, rightNames } from '../basics/names.ts';
import {
  dropRejection,
  integerOption,
  isTable,
  lazily,
  lazyOptions,
  type ParsedBy,
  parseOptions,
  showValue,
  uncheckedOption,
} from '../basics/options.ts';
import type { FsmSnapshot, Json } from '../stores/store.ts';
import { formatOf, openContext, sealContext } from './envelope.ts';
import { FORMAT, OLDEST } from './format.ts';
import type { Model, Next, Position } from './position.ts';

/** Not strict: a backend may keep more beside a snapshot than the gate gave it. */
const snapshotSchema = lazily(() =>
  z.object({
    state: z.string(),
    updatedAt: z.number(),
    version: z.optional(integerOption(0)),
    context: z.optional(z.custom<Json>()),
  }),
);

/**
 * Checks the shape of a snapshot that comes from outside, and copies it. Does not look into its
 * context.
 *
 * @throws InterlockError `ERR_INTERLOCK_SNAPSHOT` where it is malformed
 */
export function parseSnapshot(id: string, value: unknown): FsmSnapshot {
  const what = `snapshot of workflow "${id}"`;
  const { state, updatedAt, version, context } = parseOptions(
    what,
    snapshotSchema,
    value,
    'ERR_INTERLOCK_SNAPSHOT',
  );
  return {
    state,
    updatedAt,
    ...(version === undefined ? {} : { version }),
    ...(context === undefined ? {} : { context }),
  };
}

/** A run that an older deployment saved. */
export interface StoredRun {
  /** Its state, by the name that deployment had for it. */
  readonly state: string;
  /** The run's shared data; for a statechart its context. */
  readonly context?: Json | undefined;
  /** The `version` of the gate that saved it; 0 where it had none. */
  readonly version: number;
}

/**
 * Says where a stored run stands in the workflow of this deployment. What it is given, it may give
 * back: a `version` changes nothing. Must be synchronous, and always answer the same for the same
 * run.
 */
export type Migrate = (
  stored: StoredRun,
) => Pick<StoredRun, 'state' | 'context'> & Partial<Pick<StoredRun, 'version'>>;

/** The options of a gate that are about earlier deployments. */
export interface Deployment {
  /** Absent counts as 0, and snapshots do not name it. */
  readonly version?: number | undefined;
  readonly migrate?: Migrate | undefined;
}

const migratedSchema = lazyOptions(() => ({
  state: z.string(),
  context: uncheckedOption(),
  version: z.optional(z.number()),
}));

/** Marks a position as saved by this deployment. */
export function stamped({ state, context }: Position, { version }: Deployment): Position {
  const envelope = openContext(context);
  return { state, ...sealContext(version === undefined ? envelope : { ...envelope, version }) };
}

/**
 * A stored position in the terms of this deployment. The gate never resets a run that it does not
 * understand. A context that no gate wrote is the run's data.
 *
 * @throws InterlockError `ERR_INTERLOCK_SNAPSHOT` where a newer version of the package forbids it,
 * or a newer version of the gate saved the run. Also where an older gate saved it, or its state is
 * unknown, and `migrate` does not help.
 */
export function adopt(model: Model, deployment: Deployment, stored: Position): Position {
  const envelope = openContext(stored.context);
  const { version = 0 } = envelope;
  const own = deployment.version ?? 0;
  const { written, moves } = formatOf(envelope);
  const isKnown = model.mayStore?.(stored.state) ?? model.has(stored.state);
  const isOld = written > 0 && written < OLDEST;
  if (version === own && moves <= FORMAT && !isOld && isKnown)
    return written === FORMAT ? stored : stamped(stored, deployment);
  const what = `a run of "${model.id}" in ${showValue(stored.state)}`;
  if (moves > FORMAT) throw tooNew(what, moves);
  if (isOld)
    throw snapshotError(
      'older-package',
      `${what} was saved by an older version of mcp-interlock, in format ${written}, and this one ` +
        `reads formats from ${OLDEST} on: end such runs before you deploy it`,
    );
  if (version > own) {
    throw snapshotError(
      'newer-version',
      `${what} was saved by version ${version}, and this one is ${own === 0 ? 'without' : own}`,
    );
  }
  const { migrate } = deployment;
  if (migrate === undefined) {
    throw snapshotError(
      version < own ? 'older-version' : 'unknown-state',
      version < own
        ? `${what} was saved by version ${version}; ` +
            `give the gate a "migrate" that takes it to ${own}`
        : `a run is in ${showValue(stored.state)}, a state that "${model.id}" does not have, ` +
            `${rightNames(stored.state, model.names)}; give the gate a "migrate"`,
    );
  }
  const { version: _, data, ...rest } = envelope;
  const migrated = migrateRun(migrate, { state: stored.state, context: data, version }, what);
  if (!model.has(migrated.state)) {
    const fault = `"migrate" took it to ${showValue(migrated.state)}, which is no state of it`;
    const message = `${what}: ${fault}, ${rightNames(migrated.state, model.names)}`;
    throw snapshotError('migrate-returned', message);
  }
  const context = migrated.context === undefined ? {} : { data: migrated.context };
  return stamped({ state: migrated.state, ...sealContext({ ...rest, ...context }) }, deployment);
}

function tooNew(what: string, moves: number): InterlockError {
  const lowest = Number.isFinite(moves) ? `from format ${moves} on` : 'of a format unknown here';
  return snapshotError(
    'newer-package',
    `${what} was saved by a newer version of mcp-interlock, and only versions ${lowest} may ` +
      `move it; this one writes format ${FORMAT}. Deploy the newer version wherever the store ` +
      'is used',
  );
}

function migrateRun(
  migrate: Migrate,
  stored: StoredRun,
  what: string,
): { state: string; context?: Json } {
  let given: unknown;
  try {
    given = migrate(Object.freeze(stored));
  } catch (error) {
    throw snapshotError('migrate-threw', `${what}: "migrate" threw`, { cause: error });
  }
  dropRejection(given);
  const { state, context } = parseMigrated(`${what}: "migrate" returned`, given);
  return context === undefined ? { state } : { state, context: contextOf(context, what) };
}

function parseMigrated(what: string, given: unknown): ParsedBy<typeof migratedSchema> {
  try {
    return parseOptions(what, migratedSchema, given, 'ERR_INTERLOCK_SNAPSHOT');
  } catch (error) {
    if (error instanceof InterlockError) faults.set(error, 'migrate-returned');
    throw error;
  }
}

function contextOf(context: unknown, what: string): Json {
  try {
    return jsonOf(context, 'the context');
  } catch (error) {
    const message = `${what}: "migrate" returned what cannot be saved`;
    throw snapshotError('migrate-returned', message, { cause: error });
  }
}

/**
 * Why a gate cannot read a saved run. `unknown-state`: its state is no more. `older-version`: an
 * older `version` of the gate saved it, and there is no `migrate`. `newer-version`: a newer one
 * did. `newer-package`: a newer version of mcp-interlock forbids this one to move it.
 * `older-package`: an older one saved it, and this one does not read that.
 * `migrate-threw`: `migrate` throws for it. `migrate-returned`: `migrate` returns what is no state
 * of the gate, or what cannot be saved. `malformed`: the store has no whole snapshot of it.
 */
export type UnreadableKind =
  | 'unknown-state'
  | 'older-version'
  | 'newer-version'
  | 'newer-package'
  | 'older-package'
  | 'migrate-threw'
  | 'migrate-returned'
  | 'malformed';

/** Apart from the errors, whose shape is public. */
const faults = new WeakMap<InterlockError, UnreadableKind>();

/** Of which kind the error is that a saved run was answered with by {@link adopt}. */
export function unreadableKind(error: unknown): UnreadableKind {
  return (error instanceof InterlockError && faults.get(error)) || 'malformed';
}

function snapshotError(
  kind: UnreadableKind,
  message: string,
  options?: ErrorOptions,
): InterlockError {
  const error = new InterlockError('ERR_INTERLOCK_SNAPSHOT', message, options);
  faults.set(error, kind);
  return error;
}

/** The same position with other data. @throws Error where it is no JSON */
export function withData(position: Position, data: Json | undefined): Position {
  const { data: _, ...rest } = openContext(position.context);
  const kept = data === undefined ? {} : { data: jsonOf(data, 'the context') };
  return { state: position.state, ...sealContext({ ...rest, ...kept }) };
}

/**
 * A step's position with what was recorded beside it. That is the newer state, the calls that rules
 * of order remember, and what only a newer version knows. All else stays the step's own.
 */
export function withRecorded({ context }: Position, newer: Position): Position {
  const { data, history, version, entered, loop, failures } = openContext(context);
  const own = { data, history, version, entered, loop, failures };
  return { state: newer.state, ...sealContext({ ...openContext(newer.context), ...own }) };
}

/** The trail's event of a deadline that has passed. */
export const AFTER = 'after';

/** The trail's event of a run that began before any call of it. */
export const BEGIN = 'begin';

/** The trail's events of a run that an operator stopped, and let go on. */
export const FREEZE = 'freeze';
export const UNFREEZE = 'unfreeze';

/** The trail's event of a run that began anew. */
export const RESTART = 'restart';

/**
 * The position with the time at which the run entered its state, where the state has a deadline. As
 * long as nothing else was saved in that state, it is the snapshot's own time.
 */
export function whenEntered(model: Model, position: Position, updatedAt: number): Position {
  if (model.deadline(position.state) === undefined) return position;
  const envelope = openContext(position.context);
  return { state: position.state, ...sealContext({ entered: updatedAt, ...envelope }) };
}

/**
 * For how many tools a stay counts failures. Clients make up names that a glob binds, and each
 * failure of such a one would be saved.
 */
const MOST_FAILING = 100;

/**
 * The position with one more failure of the tool; `undefined` where `most` failures are counted
 * already, or those of {@link MOST_FAILING} other tools.
 */
export function countFailure(
  { state, context }: Position,
  tool: string,
  most: number,
): Position | undefined {
  if (most === 0) return undefined;
  const { failures, ...rest } = openContext(context);
  // A store may return anything: what is no count is skipped.
  const counted = new Map(isTable(failures) ? Object.entries(failures) : []);
  const before = counted.get(tool);
  const count = typeof before === 'number' && before > 0 ? before : 0;
  if (count >= most || (count === 0 && counted.size >= MOST_FAILING)) return undefined;
  const all = Object.fromEntries(counted.set(tool, count + 1));
  return { state, ...sealContext({ ...rest, failures: all }) };
}

/**
 * Drops what a run carries about the state that it has left: when it entered it, and the calls and
 * failures counted there. One that enters its state again keeps the loop shield's count: else a
 * model could go round in that circle for ever.
 */
export function arrived(next: Next): Next {
  const { position, changed, reentered = false } = next;
  if (!(changed || reentered) || position.context === undefined) return next;
  const { entered, loop, failures, ...rest } = openContext(position.context);
  const isKept = !changed && loop !== undefined;
  if (entered === undefined && failures === undefined && (isKept || loop === undefined))
    return next;
  const kept = isKept ? { ...rest, loop } : rest;
  return { ...next, position: { state: position.state, ...sealContext(kept) } };
}

/**
 * When a deadline takes the run out of its state, on the clock that stamped the snapshot;
 * `undefined` where it has none.
 */
export function leavesAt(model: Model, snapshot: FsmSnapshot): number | undefined {
  const deadline = model.deadline(snapshot.state);
  return deadline && enteredAt(snapshot) + deadline.ms;
}

function enteredAt({ context, updatedAt }: FsmSnapshot): number {
  return openContext(context).entered ?? updatedAt;
}

/**
 * Where a deadline has taken the run by `now`, on the clock that stamped the snapshot; `undefined`
 * where none has passed.
 */
export function overdue(model: Model, snapshot: FsmSnapshot, now: number): Next | undefined {
  const deadline = model.deadline(snapshot.state);
  if (deadline === undefined || now < enteredAt(snapshot) + deadline.ms) return undefined;
  const { state: _, updatedAt, version, ...carried } = snapshot;
  const position = { state: deadline.target, ...carried };
  // A deadline that leads back to its own state starts its time anew.
  const left = arrived({ position, changed: true, handled: true, actions: [] });
  return { ...left, changed: deadline.target !== snapshot.state };
}

/**
 * A frozen copy of a JSON value. Properties that are `undefined` are left out, as in JSON.
 *
 * @param where names the value in the error: `'the context'`.
 * @throws Error for what no store could give back as it was: a function, a date, a cycle, a number
 * that is not finite
 */
export function jsonOf(value: unknown, where: string): Json {
  return copy(value, where, new Set());
}

function copy(value: unknown, where: string, above: ReadonlySet<unknown>): Json {
  if (typeof value === 'string') return ownText(value);
  if (value === null || typeof value === 'boolean') return value;
  if (typeof value === 'number' && Number.isFinite(value)) return value;
  if (above.has(value)) throw new Error(`${where} contains itself`);
  const inside = new Set([...above, value]);
  if (Array.isArray(value)) {
    const items = value.map((item, index) => copy(item, `${where}[${index}]`, inside));
    return Object.freeze(items) as Json[];
  }
  if (!isPlain(value)) throw new Error(`${where} is ${describe(value)}, which is not JSON`);
  const entries = Object.entries(value).filter(([, item]) => item !== undefined);
  const copied = entries.map(
    ([key, item]) => [key, copy(item, `${where}.${key}`, inside)] as const,
  );
  return Object.freeze(Object.fromEntries(copied));
}

function isPlain(value: unknown): value is Record<string, unknown> {
  if (!isTable(value)) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return (
    prototype === null ||
    prototype === Object.prototype ||
    Object.getPrototypeOf(prototype) === null
  );
}

function describe(value: unknown): string {
  const name: unknown = isTable(value) ? value.constructor?.name : undefined;
  return typeof name === 'string' && name !== '' && name !== 'Object'
    ? `a ${name}`
    : showValue(value);
}
