import * as z from 'zod';
import { InterlockError } from '../errors.ts';
import { rightNames } from '../nearest.ts';
import { parseOptions, showValue } from '../options.ts';
import type { Json } from '../stores/store.ts';
import { openContext, sealContext } from './envelope.ts';
import { jsonOf } from './json.ts';
import type { Model, Position } from './position.ts';

/** A run that an older deployment saved. */
export interface StoredRun {
  /** Its state, as that deployment called it. */
  readonly state: string;
  /** The run's shared data; for a statechart its context. */
  readonly context?: Json | undefined;
  /** The `version` of the gate that saved it; 0 where it had none. */
  readonly version: number;
}

/**
 * Says where a stored run stands in the workflow as it is now. Must be synchronous, and always say
 * the same of the same run.
 */
export type Migrate = (stored: StoredRun) => {
  readonly state: string;
  readonly context?: Json | undefined;
};

/** What a gate says about the deployments before it. */
export interface Deployment {
  /** Absent where the gate has none, which is the same as 0 and leaves no trace in snapshots. */
  readonly version?: number | undefined;
  readonly migrate?: Migrate | undefined;
}

const migratedSchema = z.strictObject({ state: z.string(), context: z.unknown().optional() });

/** Marks a position as saved by this deployment. */
export function stamped(position: Position, { version }: Deployment): Position {
  if (version === undefined) return position;
  return { state: position.state, ...sealContext({ ...openContext(position.context), version }) };
}

/**
 * A stored position as this deployment understands it.
 *
 * @throws InterlockError `ERR_INTERLOCK_SNAPSHOT` where it does not: it comes from another version
 * or names a state that the workflow does not have, and nothing migrates it. It is never reset.
 */
export function adopt(model: Model, deployment: Deployment, stored: Position): Position {
  const { version = 0, data, ...rest } = openContext(stored.context);
  const own = deployment.version ?? 0;
  if (version === own && model.has(stored.state)) return stored;
  const what = `a run of "${model.id}" in ${showValue(stored.state)}`;
  if (version > own) {
    throw snapshotError(
      `${what} was saved by version ${version}, and this one is ${own === 0 ? 'without' : own}`,
    );
  }
  const { migrate } = deployment;
  if (migrate === undefined) {
    throw snapshotError(
      version < own
        ? `${what} was saved by version ${version}; give the gate a "migrate" that takes it to ${own}`
        : `a run is in ${showValue(stored.state)}, a state that "${model.id}" does not have, ` +
            `${rightNames(stored.state, model.names)}; give the gate a "migrate"`,
    );
  }
  const migrated = migrateRun(migrate, { state: stored.state, context: data, version }, what);
  if (!model.has(migrated.state)) {
    const fault = `"migrate" took it to ${showValue(migrated.state)}, which is no state of it`;
    throw snapshotError(`${what}: ${fault}, ${rightNames(migrated.state, model.names)}`);
  }
  const context = migrated.context === undefined ? {} : { data: migrated.context };
  return stamped({ state: migrated.state, ...sealContext({ ...rest, ...context }) }, deployment);
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
    throw snapshotError(`${what}: "migrate" threw`, { cause: error });
  }
  // A promise that nobody waits for would end the process if it were rejected.
  Promise.resolve(given).catch(() => {});
  const { state, context } = parseOptions(
    `${what}: "migrate" returned`,
    migratedSchema,
    given,
    'ERR_INTERLOCK_SNAPSHOT',
  );
  return context === undefined ? { state } : { state, context: contextOf(context, what) };
}

function contextOf(context: unknown, what: string): Json {
  try {
    return jsonOf(context, 'the context');
  } catch (error) {
    throw snapshotError(`${what}: "migrate" returned what cannot be saved`, { cause: error });
  }
}

function snapshotError(message: string, options?: ErrorOptions): InterlockError {
  return new InterlockError('ERR_INTERLOCK_SNAPSHOT', message, options);
}
