import {
  hasSessionEnded,
  isKnown,
  isNeeded,
  type Life,
  postponed,
  type RunState,
  type WorkflowState,
  workflowRecord,
} from '../run-state.ts';
import { decodeText, encodeText, jsonOrNull, textOrNull } from '../sql-text.ts';
import type { FoundRun, Json, RunsCount, SessionRecord, TrailDraft, TrailEntry } from '../store.ts';
import { draftText } from '../trail.ts';
import {
  makeTables,
  otherSqliteFormat,
  type SqliteDatabase,
  type SqliteStatement,
  type SqliteValue,
} from './database.ts';

/** A run in the file. A trail here has only new entries, which {@link SqliteRuns.save} adds. */
export interface SqliteRun extends RunState {
  /** Its key as text that the file can keep. */
  readonly id: string;
  readonly workflows: Map<string, WorkflowState>;
}

/** Of a run `r`: that it is known. Takes the time twice. */
const KNOWN = `
  (r.expires_at > ? OR EXISTS (
    SELECT 1 FROM workflows p WHERE p.run = r.run AND p.claim IS NOT NULL
       AND (json_extract(p.claim, '$.uncertain') = 'hold'
            OR json_extract(p.claim, '$.leaseEnd') > ?)
  ))`;

const STATEMENTS = {
  selectRun: 'SELECT * FROM workflow_runs WHERE run = ?',
  selectExpired: 'SELECT run FROM workflow_runs WHERE expires_at <= ? ORDER BY expires_at LIMIT ?',
  selectExpiredOf: `
    SELECT run FROM workflow_runs
     WHERE principal = ? AND expires_at <= ? ORDER BY expires_at LIMIT ?`,
  insertRun: `
    INSERT INTO workflow_runs
      (run, created_at, expires_at, session_ended, opened_by, principal, minted, client_info)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
  expireRun: 'UPDATE workflow_runs SET expires_at = ?, session_ended = ? WHERE run = ?',
  deleteRun: 'DELETE FROM workflow_runs WHERE run = ?',
  selectWorkflows: 'SELECT * FROM workflows WHERE run = ?',
  replaceWorkflow: `
    INSERT OR REPLACE INTO workflows
      (run, workflow_type, state, context, version, updated_at, claim, ended, unsettled, settled,
       seq, attempts, trail_hash)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
  deleteWorkflows: 'DELETE FROM workflows WHERE run = ?',
  selectInState: `
    SELECT run, updated_at
      FROM workflows w JOIN workflow_runs r USING (run)
     WHERE state = ? AND updated_at <= ? AND (updated_at, run) > (?, ?)
       AND workflow_type = ? AND ${KNOWN}
     ORDER BY updated_at, run LIMIT 100`,
  selectHeld: `
    SELECT w.*, r.expires_at, r.session_ended, json_extract(claim, '$.leaseEnd') AS score
      FROM workflows w JOIN workflow_runs r USING (run)
     WHERE claim IS NOT NULL AND workflow_type = ?
       AND json_extract(claim, '$.uncertain') = 'hold' AND score <= ?
       AND (score, run) > (?, ?)
     ORDER BY score, run LIMIT ?`,
  selectStuck: `
    SELECT w.*, r.expires_at, r.session_ended, updated_at AS score
      FROM workflows w JOIN workflow_runs r USING (run)
     WHERE ended IS NOT 1 AND workflow_type = ? AND ${KNOWN}
       AND updated_at <= ? AND (updated_at, run) > (?, ?)
       AND (? IS NULL OR state IN (SELECT value FROM json_each(?)))
     ORDER BY updated_at, run LIMIT ?`,
  countStates: `
    SELECT state, count(*) AS runs, sum(updated_at <= ?) AS stuck
      FROM workflows w JOIN workflow_runs r USING (run)
     WHERE ended IS NOT 1 AND workflow_type = ? AND ${KNOWN}
     GROUP BY state`,
  countClaims: `
    SELECT count(CASE WHEN json_extract(claim, '$.leaseEnd') > ? THEN 1 END) AS running,
           count(CASE WHEN json_extract(claim, '$.leaseEnd') <= ?
                       AND json_extract(claim, '$.uncertain') = 'hold' THEN 1 END) AS held,
           min(json_extract(claim, '$.since')) AS oldest
      FROM workflows w JOIN workflow_runs r USING (run)
     WHERE claim IS NOT NULL AND workflow_type = ? AND ${KNOWN}`,
  selectOwned: `
    SELECT run FROM workflow_runs r
     WHERE principal = ? AND ${KNOWN} AND run > ? ORDER BY run LIMIT ?`,
  selectEvents: `
    SELECT * FROM workflow_events
     WHERE run = ? AND workflow_type = ? ORDER BY seq DESC LIMIT ?`,
  selectFormat: 'SELECT format FROM workflow_format',
  insertEvent: `
    INSERT INTO workflow_events
      (run, workflow_type, seq, version, attempt, from_state, to_state, event, actor, tool,
       occurred_at, entry, previous, hash)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
  deleteEvents: 'DELETE FROM workflow_events WHERE run = ?',
} as const;

/** Single reads and writes of the file. The caller has a transaction open. */
export class SqliteRuns {
  readonly #sql: Readonly<Record<keyof typeof STATEMENTS, SqliteStatement>>;

  /** @throws InterlockError `ERR_INTERLOCK_STORE` where another version has made the file */
  constructor(database: SqliteDatabase) {
    makeTables(database);
    const prepared = Object.entries(STATEMENTS).map(([name, sql]) => [name, database.prepare(sql)]);
    this.#sql = Object.fromEntries(prepared);
  }

  /** @throws InterlockError `ERR_INTERLOCK_STORE` where another version has made the file anew */
  assertFormat(): void {
    const [row] = this.#sql.selectFormat.all() as { format: number }[];
    const refused = row && otherSqliteFormat(row.format);
    if (refused) throw refused;
  }

  /** The run, or `undefined` where it is unknown. */
  find(key: string, now: number): SqliteRun | undefined {
    const run = this.#read(encodeText(key));
    return run && isKnown(run, now) ? run : undefined;
  }

  /** The run, also one that is gone. */
  #read(id: string): SqliteRun | undefined {
    const [row] = this.#sql.selectRun.all(id) as SqliteRunRow[];
    if (!row) return undefined;
    const rows = this.#sql.selectWorkflows.all(id) as SqliteWorkflowRow[];
    const workflows = new Map(
      rows.map((each) => [decodeText(each.workflow_type), workflowOfRow(each)]),
    );
    const openedBy = row.opened_by === null ? undefined : decodeText(row.opened_by);
    return { id, session: toSession(row), openedBy, workflows, ...toLife(row) };
  }

  /** Replaces what is under the key, with the workflows of the run. */
  make(
    key: string,
    run: Pick<SqliteRun, 'session' | 'openedBy' | 'workflows'> & Life,
    now: number,
  ): SqliteRun {
    const id = encodeText(key);
    const { session, openedBy, workflows, expiresAt, sessionEnded } = run;
    this.#remove(id);
    const ended = Number(sessionEnded ?? false);
    const values = [textOrNull(openedBy), ...fromSession(session)];
    this.#sql.insertRun.run(id, now, expiresAt, ended, ...values);
    const made = { ...run, id };
    for (const [name, workflow] of workflows) this.save(made, name, workflow);
    return made;
  }

  live(run: Pick<SqliteRun, 'id'>, { expiresAt, sessionEnded }: Life): void {
    this.#sql.expireRun.run(expiresAt, Number(sessionEnded ?? false), run.id);
  }

  /** Replaces the workflow, in `run` too, and adds the entries of its trail to the file. */
  save({ id, workflows }: SqliteRun, name: string, workflow: WorkflowState): void {
    workflows.set(name, workflow);
    this.#sql.replaceWorkflow.run(id, encodeText(name), ...fromWorkflow(workflow));
    for (const entry of workflow.trail) {
      this.#sql.insertEvent.run(id, encodeText(name), ...fromTrailEntry(entry));
    }
  }

  /** The newest entries, oldest first. */
  trail({ id }: SqliteRun, workflow: string, atMost: number): TrailEntry[] {
    const rows = this.#sql.selectEvents.all(id, encodeText(workflow), atMost) as SqliteEventRow[];
    return rows.map(entryOfRow).reverse();
  }

  /** Held runs behind a place, those whose lease ended first come first. */
  held(workflow: string, now: number, { score, id }: PageEnd, limit: number): PagedRun[] {
    const rows = this.#sql.selectHeld.all(encodeText(workflow), now, score, id, limit);
    return this.#found(rows as SqliteFoundRow[], now);
  }

  /** Runs that have not moved since `latest`, behind a place, the oldest first. */
  stuck(
    workflow: string,
    now: number,
    { latest, states }: { readonly latest: number; readonly states: readonly string[] | undefined },
    { score, id }: PageEnd,
    limit: number,
  ): PagedRun[] {
    const allowed = states === undefined ? null : JSON.stringify(states.map(encodeText));
    const place = [latest, score, id, allowed, allowed, limit] as const;
    const rows = this.#sql.selectStuck.all(encodeText(workflow), now, now, ...place);
    return this.#found(rows as SqliteFoundRow[], now);
  }

  /** How many runs have not ended, by state, and how many of them not moved since `latest`. */
  countStates(workflow: string, now: number, latest: number): RunsCount['states'] {
    const rows = this.#sql.countStates.all(latest, encodeText(workflow), now, now);
    return (rows as { state: string; runs: number; stuck: number }[]).map((row) => ({
      ...row,
      state: decodeText(row.state),
    }));
  }

  countClaims(workflow: string, now: number): ClaimsRow {
    const values = [now, now, encodeText(workflow), now, now];
    const [row] = this.#sql.countClaims.all(...values) as ClaimsRow[];
    return row ?? { running: 0, held: 0, oldest: null };
  }

  /** The keys of a principal's runs behind the key `after`, as the file keeps them. */
  owned(principal: string, now: number, after: string, limit: number): string[] {
    const rows = this.#sql.selectOwned.all(encodeText(principal), now, now, after, limit);
    return (rows as { run: string }[]).map(({ run }) => run);
  }

  #found(rows: readonly SqliteFoundRow[], now: number): PagedRun[] {
    return rows.map((row) => ({
      place: { score: row.score, id: row.run },
      run: {
        run: decodeText(row.run),
        ...workflowRecord(workflowOfRow(row), now),
        ...(hasSessionEnded(toLife(row), now) && { sessionEnded: true as const }),
      },
    }));
  }

  /**
   * The next runs in a state, those that have been there longest first; none behind the last one.
   */
  inState(
    workflow: string,
    state: string,
    latest: number,
    now: number,
    after?: SweptRun,
  ): SweptRun[] {
    const { updated_at, run } = after ?? { updated_at: Number.NEGATIVE_INFINITY, run: '' };
    const values = [encodeText(state), latest, updated_at, run, encodeText(workflow), now, now];
    return this.#sql.selectInState.all(...values) as SweptRun[];
  }

  remove(key: string): void {
    this.#remove(encodeText(key));
  }

  /**
   * Looks at some expired runs, and removes those that are not needed any more. A needed one
   * expires later, so that it stands in the way of no other.
   */
  sweep(
    now: number,
    atMost: number,
    principal?: string,
  ): { readonly looked: number; readonly removed: number } {
    const expired = (
      principal === undefined
        ? this.#sql.selectExpired.all(now, atMost)
        : this.#sql.selectExpiredOf.all(encodeText(principal), now, atMost)
    ) as { run: string }[];
    let removed = 0;
    for (const { run: id } of expired) {
      const run = this.#read(id);
      if (run !== undefined && isNeeded(run, now)) {
        this.live(run, postponed(now));
      } else {
        this.#remove(id);
        removed++;
      }
    }
    return { looked: expired.length, removed };
  }

  #remove(id: string): void {
    this.#sql.deleteRun.run(id);
    this.#sql.deleteWorkflows.run(id);
    this.#sql.deleteEvents.run(id);
  }
}

interface LifeRow {
  readonly expires_at: number;
  readonly session_ended: number;
}

interface SqliteRunRow extends LifeRow {
  readonly principal: string | null;
  readonly minted: number | null;
  readonly client_info: string | null;
  readonly opened_by: string | null;
}

interface SqliteWorkflowRow {
  readonly run: string;
  readonly workflow_type: string;
  readonly state: string;
  readonly context: string | null;
  readonly version: number;
  readonly updated_at: number;
  readonly claim: string | null;
  readonly ended: number | null;
  readonly unsettled: string;
  readonly settled: string;
  readonly seq: number;
  readonly attempts: number;
  readonly trail_hash: string | null;
}

interface SqliteFoundRow extends SqliteWorkflowRow, LifeRow {
  readonly score: number;
}

interface ClaimsRow {
  readonly running: number;
  readonly held: number;
  readonly oldest: number | null;
}

/** Where a page ends: the time that orders it, and the run's key as the file keeps it. */
export interface PageEnd {
  readonly score: number;
  readonly id: string;
}

/** A run of a page. */
export interface PagedRun {
  readonly place: PageEnd;
  readonly run: FoundRun;
}

/** A run in a state, with its key as the file keeps it. */
export interface SweptRun {
  readonly run: string;
  readonly updated_at: number;
}

interface SqliteEventRow {
  readonly seq: number;
  readonly version: number;
  readonly attempt: number;
  readonly occurred_at: number;
  readonly entry: string;
  readonly previous: string | null;
  readonly hash: string | null;
}

function toLife({ expires_at, session_ended }: LifeRow): Life {
  return { expiresAt: expires_at, sessionEnded: session_ended !== 0 };
}

/** Its trail stays in the table of events. */
function workflowOfRow(row: SqliteWorkflowRow): WorkflowState {
  const { version, updated_at: updatedAt, context, claim, seq, attempts, trail_hash: hash } = row;
  return {
    snapshot: {
      state: decodeText(row.state),
      updatedAt,
      version,
      ...(context !== null && { context: JSON.parse(context) as Json }),
    },
    claim: claim === null ? undefined : JSON.parse(claim),
    ended: row.ended === null ? undefined : row.ended !== 0,
    unsettled: JSON.parse(row.unsettled),
    settled: JSON.parse(row.settled),
    trail: [],
    head: hash === null ? { seq, attempts } : { seq, attempts, hash },
  };
}

function toSession({ principal, minted, client_info }: SqliteRunRow): SessionRecord {
  return {
    ...(principal !== null && { principal: decodeText(principal) }),
    ...(minted !== null && { minted: minted !== 0 }),
    ...(client_info !== null && { clientInfo: JSON.parse(client_info) }),
  };
}

/** `principal`, `minted` and `client_info`. */
function fromSession({ principal, minted, clientInfo }: SessionRecord): SqliteValue[] {
  return [
    textOrNull(principal),
    minted === undefined ? null : Number(minted),
    clientInfo === undefined ? null : JSON.stringify(clientInfo),
  ];
}

/** The columns of a workflow behind those of its key, in their order. */
function fromWorkflow({
  snapshot,
  claim,
  ended,
  unsettled,
  settled,
  head,
}: WorkflowState): SqliteValue[] {
  const { state, context, version = 0, updatedAt } = snapshot;
  return [
    encodeText(state),
    jsonOrNull(context),
    version,
    updatedAt,
    jsonOrNull(claim),
    ended === undefined ? null : Number(ended),
    JSON.stringify(unsettled),
    JSON.stringify(settled),
    head.seq,
    head.attempts,
    head.hash ?? null,
  ];
}

function entryOfRow(row: SqliteEventRow): TrailEntry {
  const { seq, version, attempt, occurred_at: at, entry, previous, hash } = row;
  return {
    seq,
    version,
    attempt,
    at,
    ...(JSON.parse(entry) as TrailDraft),
    ...(previous !== null && { previous }),
    ...(hash !== null && { hash }),
  };
}

/** The columns of an entry behind its run and workflow, in their order. */
function fromTrailEntry(entry: TrailEntry): SqliteValue[] {
  const { seq, version, attempt, from, to, event, actor, tool, at, previous, hash } = entry;
  const texts = [encodeText(from), textOrNull(to), textOrNull(event)];
  const said = [textOrNull(actor), textOrNull(tool), at, draftText(entry)];
  return [seq, version, attempt, ...texts, ...said, previous ?? null, hash ?? null];
}
