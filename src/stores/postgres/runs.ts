/**
 * Runs in PostgreSQL. Hides the statements, and that no answer depends on the caller's settings.
 */
import type { IndexPlace } from '../document/documents.ts';
import {
  changeOf,
  type FlowChange,
  type FoundFlow,
  type FoundParts,
  foundIn,
  type KeptRun,
  type RunDocuments,
  type RunsFind,
  type RunsIndex,
  type RunsTally,
  type RunWrite,
  revisionOf,
  runOfParts,
  type TrailQuery,
  type WrittenRun,
  withFlows,
} from '../document/run-parts.ts';
import { unsettledSince } from '../run-state.ts';
import { decodeText, encodeKey, encodeText, textOrNull } from '../sql-text.ts';
import type { Json, SwitchRecord, TrailEntry } from '../store.ts';
import {
  otherPostgresFormat,
  POSTGRES_FORMAT,
  type PostgresClient,
  type PostgresNames,
  type PostgresPool,
} from './names.ts';

/** How many rows one statement of a purge removes, so that no step waits long for it. */
const PURGED_AT_ONCE = 500;

/** How often a statement is sent again that a stricter isolation level has refused. */
const MOST_REFUSED = 20;

/** A run as the functions give it. */
interface RunRow {
  readonly revisions: string;
  readonly life: string;
  readonly flows: readonly FoundFlow[];
  readonly entries: readonly string[] | null;
}

interface SwapAnswer {
  readonly swapped: boolean;
  /** What is there, where it was not swapped: all of the run, or workflows of it. */
  readonly run: RunRow | null;
  readonly isWhole: boolean;
  readonly now: number;
}

export class PostgresRuns implements RunDocuments {
  readonly index: RunsIndex = {
    readAll: (keys) => this.#readAll(keys),
    find: (query) => this.#find(query),
    count: (query) => this.#count(query),
    purge: (principal) => this.#purge(principal),
  };
  readonly #pool: PostgresPool;
  readonly #names: PostgresNames;

  constructor(pool: PostgresPool, names: PostgresNames) {
    this.#pool = pool;
    this.#names = names;
  }

  keyOf(run: string): string {
    return encodeKey(run);
  }

  async read(key: string, trail?: TrailQuery): Promise<FoundParts> {
    const [found = {}] = await this.#readAll([key], trail);
    return found;
  }

  swap(write: RunWrite): Promise<WrittenRun> {
    return this.#swap(this.#pool, write);
  }

  /** The swap in the app's transaction, which holds the row of its workflow and nothing else. */
  swapIn(client: PostgresClient, write: RunWrite): Promise<WrittenRun> {
    return this.#swap(client, write);
  }

  async remove(key: string, kept: KeptRun): Promise<boolean> {
    const names = [...kept.flows.keys()];
    const judged = { whole: names.length, ...expectations(kept, names) };
    const request = { key, isNew: false, isGone: true, isStep: false, ...judged };
    return (await this.#askSwap(this.#pool, request)).swapped;
  }

  async readSwitch(workflow: string): Promise<SwitchRecord | undefined> {
    const row = await this.#ask<{ readonly value: string; readonly revision: string } | null>(
      `(SELECT pg_catalog.json_build_object('value', value::pg_catalog.text, 'revision', revision)
          FROM ${this.#names.switches}
         WHERE workflow_type OPERATOR(pg_catalog.=) $1::pg_catalog.text)`,
      encodeKey(workflow),
    );
    if (row === null) return undefined;
    return { value: JSON.parse(row.value) as Json, revision: decodeText(row.revision) };
  }

  swapSwitch(
    workflow: string,
    expected: string | undefined,
    { revision, value }: SwitchRecord,
  ): Promise<boolean> {
    return this.#ask<boolean>(`${this.#names.swapSwitch}($1::pg_catalog.json)`, {
      workflow: encodeKey(workflow),
      expected: textOrNull(expected),
      revision: encodeText(revision),
      value: JSON.stringify(value),
    });
  }

  async now(): Promise<number> {
    const read = `${this.#names.read}($1::pg_catalog.json)`;
    return (await this.#ask<{ readonly now: number }>(read, { keys: [] })).now;
  }

  async #swap(client: PostgresClient, write: RunWrite): Promise<WrittenRun> {
    const { key, before, isNew, isClaim, revision } = write;
    const { life, flows, kept } = changeOf(write);
    // What replaces a run of another birth judges all of it.
    const judgesAll = write.judgesAll || isNew;
    const isStep = write.isStep && !isNew;
    const all = [...(before?.flows.keys() ?? [])];
    const judged = judgesAll && !isStep ? all : write.flows;
    const others = judgesAll ? all.filter((name) => !judged.includes(name)) : [];
    const request = {
      ...{ key, isNew, isGone: false, isStep, revision },
      principal: textOrNull(write.next.session.principal),
      ...(judgesAll && { whole: all.length }),
      adds: flows.some(({ workflow }) => !before?.flows.has(workflow)),
      claims: isClaim,
      ...expectations(before, judged),
      seen: expectations(before, others).judged,
      ...(life && { life: life.text, expires: bounded(life.expiresAt ?? LAST_MS) }),
      flows: flows.map(flowRow),
    };
    const { swapped, run, isWhole, now } = await this.#askSwap(client, request);
    if (swapped) return { swapped, kept, now };
    const known = isWhole ? undefined : before;
    return { swapped, ...foundIn(key, () => this.#parsed(key, run, known)), now };
  }

  #askSwap(client: PostgresClient, request: object): Promise<SwapAnswer> {
    return this.#ask<SwapAnswer>([client, `${this.#names.swap}($1::pg_catalog.json)`], request);
  }

  async #readAll(keys: readonly string[], trail?: TrailQuery): Promise<FoundParts[]> {
    const asked = trail && { trail: encodeText(trail.workflow), limit: trail.limit };
    const { runs, now } = await this.#ask<{
      readonly runs: readonly (RunRow | null)[];
      readonly now: number;
    }>(`${this.#names.read}($1::pg_catalog.json)`, { keys, ...asked });
    return keys.map((key, at) => {
      const row = runs[at] ?? null;
      const entries = row?.entries?.map((each) => JSON.parse(each) as TrailEntry);
      return { ...foundIn(key, () => this.#parsed(key, row)), now, entries };
    });
  }

  #parsed(key: string, row: RunRow | null, known?: KeptRun): KeptRun | undefined {
    if (known) return withFlows(known, row?.flows ?? []);
    return row === null
      ? undefined
      : runOfParts(this, key, { text: row.life, revisions: row.revisions }, row.flows);
  }

  #find({ kind, of, labels, upTo, after, limit }: RunsFind): Promise<IndexPlace[]> {
    return this.#ask<IndexPlace[]>(`${this.#names.find}($1::pg_catalog.json)`, {
      ...{ kind, of: encodeText(of), labels, limit, upTo: bounded(upTo) },
      score: bounded(after?.score ?? -LAST_MS),
      key: after?.key ?? '',
    });
  }

  #count(query: Parameters<NonNullable<RunsIndex['count']>>[0]): Promise<RunsTally[]> {
    const { kind, of, upTo, now } = query;
    const request = { kind, of: encodeText(of), upTo: bounded(upTo), now };
    return this.#ask<RunsTally[]>(`${this.#names.count}($1::pg_catalog.json)`, request);
  }

  async #purge(principal: string | undefined): Promise<number> {
    const owner = textOrNull(principal);
    const { sweep, forget } = this.#names;
    let purged = 0;
    for (let looked = PURGED_AT_ONCE; looked >= PURGED_AT_ONCE; ) {
      const swept = await this.#ask<{ readonly looked: number; readonly removed: number }>(
        `${sweep}($1::pg_catalog.int4, $2::pg_catalog.text)`,
        ...[PURGED_AT_ONCE, owner],
      );
      purged += swept.removed;
      looked = swept.looked;
    }
    const forgetSome = `${forget}($1::pg_catalog.text, $2::pg_catalog.int4)`;
    while (owner !== null && (await this.#ask<number>(forgetSome, owner, PURGED_AT_ONCE)) > 0);
    return purged;
  }

  /**
   * Asks in one round trip, but not where the tables are of another format. Asks for the answer as
   * text, which the caller's type parsers leave alone.
   *
   * @param invocation with a client where it belongs into a transaction of the app's
   */
  async #ask<Answer>(
    invocation: string | readonly [client: PostgresClient, invocation: string],
    ...values: readonly unknown[]
  ): Promise<Answer> {
    const isOwn = typeof invocation === 'string' || invocation[0] === this.#pool;
    const [client, text] = typeof invocation === 'string' ? [this.#pool, invocation] : invocation;
    const parameters = values.map((value) =>
      typeof value === 'object' && value !== null ? JSON.stringify(value) : value,
    );
    for (let tries = 1; ; tries++) {
      try {
        return await askOnce<Answer>(client, this.#names, text, parameters);
      } catch (error) {
        // A stricter level than READ COMMITTED asks for this. The app's transaction is the app's.
        if (!isOwn || tries === MOST_REFUSED || codeOf(error) !== SERIALIZATION_FAILURE)
          throw error;
      }
    }
  }
}

/** Near enough to the first and the last time of a `timestamptz`, in milliseconds. */
const LAST_MS = 1e14;

function bounded(ms: number): number {
  return Math.max(-LAST_MS, Math.min(ms, LAST_MS));
}

function expectations(
  before: KeptRun | undefined,
  flows: readonly string[],
): { readonly expected: string | undefined; readonly judged: readonly unknown[] } {
  return {
    expected: revisionOf(before?.life),
    judged: flows.map((name) => {
      return { workflow: encodeText(name), revision: revisionOf(before?.flows.get(name)) };
    }),
  };
}

/** A time as it stands in a column: whole, or a list could not go on behind its row. */
function timeOf(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : Math.floor(bounded(ms));
}

function flowRow({ workflow, state, texts, settled, entries, expiresAt }: FlowChange): object {
  const { snapshot, claim, frozen, ended } = state;
  return {
    workflow: encodeText(workflow),
    // An absent text stays, and an empty one goes.
    ...Object.fromEntries(Object.entries(texts).map(([name, text]) => [name, text ?? ''])),
    ...{ settled, ended },
    needed: timeOf(expiresAt),
    ...{ state: encodeText(snapshot.state), version: snapshot.version ?? 0 },
    updated: timeOf(snapshot.updatedAt),
    frozen: frozen && JSON.stringify(frozen),
    unsettled: timeOf(unsettledSince(state)),
    ...(claim && {
      ...{ uncertain: claim.uncertain, tool: encodeText(claim.tool) },
      ...{ since: timeOf(claim.since), until: timeOf(claim.leaseEnd) },
    }),
    entries: entries.map((entry) => {
      const { seq, version, attempt, at, from, to, event, outcome, kind, tool, actor } = entry;
      const texts = { from, to, event, outcome, kind, tool, actor };
      const encoded = Object.entries(texts).map(([name, value]) => [name, textOrNull(value)]);
      const stamps = { seq, version, attempt, at, entry: JSON.stringify(entry) };
      return { ...stamps, ...Object.fromEntries(encoded) };
    }),
  };
}

/** PostgreSQL's codes for a call of a function that is not there, and for a refused transaction. */
const UNDEFINED_FUNCTION = '42883';
const UNDEFINED_TABLE = '42P01';
const INVALID_SCHEMA = '3F000';
const SERIALIZATION_FAILURE = '40001';

function codeOf(error: unknown): unknown {
  return (error as { readonly code?: unknown } | undefined)?.code;
}

async function askOnce<Answer>(
  client: PostgresClient,
  names: PostgresNames,
  invocation: string,
  parameters: readonly unknown[],
): Promise<Answer> {
  const format = `${names.format}()`;
  const isKnown = `${format} OPERATOR(pg_catalog.=) ${POSTGRES_FORMAT}`;
  const answer = `CASE WHEN ${isKnown} THEN ${invocation}::pg_catalog.text END`;
  const statement = `SELECT ${answer} AS answer, ${format}::pg_catalog.text AS format`;
  const { rows } = await client
    .query(statement, [...parameters])
    .catch((error) => explain(error, client, names));
  const [row] = rows as { answer: string | null; format: string }[];
  if (!row) throw new TypeError('The database answered without a row');
  const refused = otherPostgresFormat(row.format, names);
  if (refused) throw refused;
  return JSON.parse(row.answer || 'null');
}

async function explain(
  error: unknown,
  client: PostgresClient,
  names: PostgresNames,
): Promise<never> {
  const missing: unknown[] = [UNDEFINED_FUNCTION, UNDEFINED_TABLE, INVALID_SCHEMA];
  if (!missing.includes(codeOf(error))) throw error;
  // Another format may have other functions. A client in a failed transaction cannot say it.
  const format = `SELECT ${names.format}()::text AS format`;
  const { rows } = await client.query(format).catch(() => ({ rows: [] }));
  const [row] = rows as { format: string }[];
  const refused = row && otherPostgresFormat(row.format, names);
  if (refused) throw refused;
  const { message } = error as Error;
  throw new Error(`call migrate() of postgresStore() first: ${message}`, { cause: error });
}
