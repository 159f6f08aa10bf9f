import { type RunState, type WorkflowState, workflowRecord } from '../run-state.ts';
import { decodeText, encodeText, jsonOrNull, textOrNull } from '../sql-text.ts';
import type { FoundRun, Json, RunsCount, SessionRecord, TrailDraft, TrailEntry } from '../store.ts';
import { draftText, firstHash, type TrailHead } from '../trail.ts';
import {
  FORMAT,
  migrate,
  newerFormat,
  type SqliteDatabase,
  type SqliteStatement,
  type SqliteValue,
} from './database.ts';

/** A run in the file. A trail here has only new entries, which {@link SqliteRuns.save} adds. */
export interface SqliteRun extends RunState {
  /** Its key as text that the file can keep. */
  readonly id: string;
  readonly workflows: Map<string, WorkflowState>;
  /** Workflows that an older version of the package wrote last: it numbers no entries. */
  readonly unnumbered: Set<string>;
}

const STATEMENTS = {
  selectRun: `
    SELECT principal, minted, opened_by, expires_at
      FROM workflow_runs WHERE run = ? AND expires_at > ?`,
  selectExpired: 'SELECT run FROM workflow_runs WHERE expires_at <= ? LIMIT ?',
  insertRun: `
    INSERT INTO workflow_runs (run, created_at, expires_at, opened_by, principal, minted)
    VALUES (?, ?, ?, ?, ?, ?)`,
  expireRun: 'UPDATE workflow_runs SET expires_at = ? WHERE run = ?',
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
       AND workflow_type = ? AND expires_at > ?
     ORDER BY updated_at, run LIMIT 100`,
  selectHeld: `
    SELECT w.*, json_extract(claim, '$.leaseEnd') AS score
      FROM workflows w JOIN workflow_runs r USING (run)
     WHERE claim IS NOT NULL AND workflow_type = ? AND expires_at > ?
       AND json_extract(claim, '$.uncertain') = 'hold' AND score <= ?
       AND (score, run) > (?, ?)
     ORDER BY score, run LIMIT ?`,
  selectStuck: `
    SELECT w.*, updated_at AS score
      FROM workflows w JOIN workflow_runs r USING (run)
     WHERE ended IS NOT 1 AND workflow_type = ? AND expires_at > ?
       AND updated_at <= ? AND (updated_at, run) > (?, ?)
       AND (? IS NULL OR state IN (SELECT value FROM json_each(?)))
     ORDER BY updated_at, run LIMIT ?`,
  countStates: `
    SELECT state, count(*) AS runs, sum(updated_at <= ?) AS stuck
      FROM workflows w JOIN workflow_runs r USING (run)
     WHERE ended IS NOT 1 AND workflow_type = ? AND expires_at > ?
     GROUP BY state`,
  countClaims: `
    SELECT count(CASE WHEN json_extract(claim, '$.leaseEnd') > ? THEN 1 END) AS running,
           count(CASE WHEN json_extract(claim, '$.leaseEnd') <= ?
                       AND json_extract(claim, '$.uncertain') = 'hold' THEN 1 END) AS held,
           min(json_extract(claim, '$.since')) AS oldest
      FROM workflows w JOIN workflow_runs r USING (run)
     WHERE claim IS NOT NULL AND workflow_type = ? AND expires_at > ?`,
  selectOwned: `
    SELECT run FROM workflow_runs
     WHERE principal = ? AND expires_at > ? AND run > ? ORDER BY run LIMIT ?`,
  selectEvents: `
    SELECT * FROM workflow_events
     WHERE run = ? AND workflow_type = ? ORDER BY rowid DESC LIMIT ?`,
  selectUnnumbered: `
    SELECT rowid AS id FROM workflow_events
     WHERE run = ? AND workflow_type = ? AND seq IS NULL ORDER BY rowid`,
  selectHead: `
    SELECT hash,
           CASE WHEN entry IS NOT NULL AND json_extract(entry, '$.to') IS NULL
                THEN attempt ELSE 0 END AS attempts,
           (SELECT coalesce(max(seq), 0) + count(*) - count(seq) FROM workflow_events e
             WHERE e.run = n.run AND e.workflow_type = n.workflow_type) AS seq
      FROM workflow_events n WHERE run = ? AND workflow_type = ? ORDER BY rowid DESC LIMIT 1`,
  selectLastNumber:
    'SELECT coalesce(max(seq), 0) AS seq FROM workflow_events WHERE run = ? AND workflow_type = ?',
  numberEvent: 'UPDATE workflow_events SET seq = ?, attempt = 1 WHERE rowid = ?',
  selectFormat: 'SELECT max(format) AS format FROM workflow_format',
  insertEvent: `
    INSERT INTO workflow_events
      (run, workflow_type, version, from_state, to_state, event, payload, actor, tool, occurred_at,
       seq, attempt, entry, hash)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
  deleteEvents: 'DELETE FROM workflow_events WHERE run = ?',
} as const;

/** Single reads and writes of the file. The caller has a transaction open. */
export class SqliteRuns {
  readonly #sql: Readonly<Record<keyof typeof STATEMENTS, SqliteStatement>>;
  readonly #isChained: boolean;

  /** @throws InterlockError `ERR_INTERLOCK_STORE` where a newer version has changed the file */
  constructor(database: SqliteDatabase, isChained: boolean) {
    this.#isChained = isChained;
    migrate(database);
    const prepared = Object.entries(STATEMENTS).map(([name, sql]) => [name, database.prepare(sql)]);
    this.#sql = Object.fromEntries(prepared);
  }

  /**
   * @throws InterlockError `ERR_INTERLOCK_STORE` where a newer version has changed the file since
   */
  assertFormat(): void {
    const [row] = this.#sql.selectFormat.all() as { format: number }[];
    if (row !== undefined && row.format > FORMAT) throw newerFormat(row.format);
  }

  /** The run, or `undefined` where it is unknown or has expired. */
  find(key: string, now: number): SqliteRun | undefined {
    const id = encodeText(key);
    const [row] = this.#sql.selectRun.all(id, now) as RunRow[];
    if (!row) return undefined;
    const rows = this.#sql.selectWorkflows.all(id) as WorkflowRow[];
    const workflows = new Map(
      rows.map((each) => [decodeText(each.workflow_type), this.#toWorkflow(each)]),
    );
    const openedBy = row.opened_by === null ? undefined : decodeText(row.opened_by);
    const behind = rows.filter(({ seq }) => seq === null);
    const unnumbered = new Set(behind.map((each) => decodeText(each.workflow_type)));
    const session = toSession(row);
    return { id, session, openedBy, workflows, unnumbered, expiresAt: row.expires_at };
  }

  /** Replaces what is under the key. */
  make(
    key: string,
    run: Pick<SqliteRun, 'session' | 'openedBy' | 'expiresAt'>,
    now: number,
  ): SqliteRun {
    const id = encodeText(key);
    const { session, openedBy, expiresAt } = run;
    this.#remove(id);
    this.#sql.insertRun.run(id, now, expiresAt, textOrNull(openedBy), ...fromSession(session));
    return { id, session, openedBy, workflows: new Map(), unnumbered: new Set(), expiresAt };
  }

  expire({ id }: SqliteRun, expiresAt: number): void {
    this.#sql.expireRun.run(expiresAt, id);
  }

  /** Replaces the workflow, in `run` too, and adds the entries of its trail to the file. */
  save(run: SqliteRun, name: string, workflow: WorkflowState): void {
    const { id, workflows, unnumbered } = run;
    if (unnumbered.delete(name)) this.number(run, name);
    workflows.set(name, workflow);
    this.#sql.replaceWorkflow.run(id, encodeText(name), ...fromWorkflow(workflow));
    for (const entry of workflow.trail) {
      this.#sql.insertEvent.run(id, encodeText(name), ...fromTrailEntry(entry));
    }
  }

  /**
   * The newest entries, oldest first; `undefined` where some have no number yet, since an older
   * version of the package wrote them.
   */
  trail({ id }: SqliteRun, workflow: string, atMost: number): TrailEntry[] | undefined {
    const rows = this.#sql.selectEvents.all(id, encodeText(workflow), atMost) as EventRow[];
    if (rows.some(({ seq }) => seq === null)) return undefined;
    return rows.map(toTrailEntry).reverse();
  }

  /** Numbers the entries that older versions of the package have written. */
  number({ id }: Pick<SqliteRun, 'id'>, workflow: string): void {
    const name = encodeText(workflow);
    const [last] = this.#sql.selectLastNumber.all(id, name) as { seq: number }[];
    let seq = last?.seq ?? 0;
    for (const row of this.#sql.selectUnnumbered.all(id, name) as { id: number }[])
      this.#sql.numberEvent.run(++seq, row.id);
  }

  /** Held runs behind a place, those whose lease ended first come first. */
  held(workflow: string, now: number, { score, id }: PageEnd, limit: number): PagedRun[] {
    const rows = this.#sql.selectHeld.all(encodeText(workflow), now, now, score, id, limit);
    return this.#found(rows as FoundRow[], now);
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
    const rows = this.#sql.selectStuck.all(encodeText(workflow), now, ...place);
    return this.#found(rows as FoundRow[], now);
  }

  /** How many runs have not ended, by state, and how many of them not moved since `latest`. */
  countStates(workflow: string, now: number, latest: number): RunsCount['states'] {
    const rows = this.#sql.countStates.all(latest, encodeText(workflow), now);
    return (rows as { state: string; runs: number; stuck: number }[]).map((row) => ({
      ...row,
      state: decodeText(row.state),
    }));
  }

  countClaims(workflow: string, now: number): ClaimsRow {
    const [row] = this.#sql.countClaims.all(now, now, encodeText(workflow), now) as ClaimsRow[];
    return row ?? { running: 0, held: 0, oldest: null };
  }

  /** The keys of a principal's runs behind the key `after`, as the file keeps them. */
  owned(principal: string, now: number, after: string, limit: number): string[] {
    const rows = this.#sql.selectOwned.all(encodeText(principal), now, after, limit);
    return (rows as { run: string }[]).map(({ run }) => run);
  }

  #found(rows: readonly FoundRow[], now: number): PagedRun[] {
    return rows.map((row) => ({
      place: { score: row.score, id: row.run },
      run: { run: decodeText(row.run), ...workflowRecord(this.#toWorkflow(row), now) },
    }));
  }

  /** Its trail stays in the table of events. */
  #toWorkflow(row: WorkflowRow): WorkflowState {
    const { version, updated_at: updatedAt, context, claim } = row;
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
      head: this.#head(row),
    };
  }

  /**
   * An older version of the package empties these columns: then the newest entry counts. A chained
   * trail stays chained, even if this store was made without `chainTrail`.
   */
  #head({ run, workflow_type, seq, attempts, trail_hash }: WorkflowRow): TrailHead {
    const [newest] = (
      seq === null ? this.#sql.selectHead.all(run, workflow_type) : [{ seq, attempts }]
    ) as HeadRow[];
    const hash = trail_hash ?? newest?.hash ?? firstHash(this.#isChained);
    return {
      seq: newest?.seq ?? 0,
      attempts: newest?.attempts ?? 0,
      ...(hash !== undefined && { hash }),
    };
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
    const values = [encodeText(state), latest, updated_at, run, encodeText(workflow), now];
    return this.#sql.selectInState.all(...values) as SweptRun[];
  }

  remove(key: string): void {
    this.#remove(encodeText(key));
  }

  /** Removes expired runs, and gives their number. */
  sweep(now: number, atMost: number): number {
    const expired = this.#sql.selectExpired.all(now, atMost) as { run: string }[];
    for (const { run } of expired) this.#remove(run);
    return expired.length;
  }

  #remove(id: string): void {
    this.#sql.deleteRun.run(id);
    this.#sql.deleteWorkflows.run(id);
    this.#sql.deleteEvents.run(id);
  }
}

interface RunRow {
  readonly principal: string | null;
  readonly minted: number | null;
  readonly opened_by: string | null;
  readonly expires_at: number;
}

interface HeadRow {
  readonly seq: number;
  readonly attempts: number | null;
  readonly hash?: string | null;
}

interface WorkflowRow {
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
  readonly seq: number | null;
  readonly attempts: number | null;
  readonly trail_hash: string | null;
}

interface FoundRow extends WorkflowRow {
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

interface EventRow {
  readonly seq: number | null;
  readonly attempt: number | null;
  readonly entry: string | null;
  readonly hash: string | null;
  readonly version: number;
  readonly from_state: string;
  readonly to_state: string;
  readonly event: string | null;
  readonly payload: string | null;
  readonly actor: string | null;
  readonly tool: string | null;
  readonly occurred_at: number;
}

function toSession({ principal, minted }: RunRow): SessionRecord {
  return {
    ...(principal !== null && { principal: decodeText(principal) }),
    ...(minted !== null && { minted: minted !== 0 }),
  };
}

/** `principal` and `minted`. */
function fromSession({ principal, minted }: SessionRecord): SqliteValue[] {
  return [textOrNull(principal), minted === undefined ? null : Number(minted)];
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

function toTrailEntry(row: EventRow): TrailEntry {
  const { version, event, payload, actor, tool, entry, hash } = row;
  const stamps = {
    seq: row.seq ?? version,
    version,
    attempt: row.attempt ?? 1,
    at: row.occurred_at,
  };
  const said: TrailDraft =
    entry !== null
      ? (JSON.parse(entry) as TrailDraft)
      : {
          from: decodeText(row.from_state),
          to: decodeText(row.to_state),
          event: event === null ? null : decodeText(event),
          ...(tool !== null && { tool: decodeText(tool) }),
          ...(actor !== null && { actor: decodeText(actor) }),
          ...(payload !== null && { payload: JSON.parse(payload) as Json }),
        };
  return { ...stamps, ...said, ...(hash !== null && { hash }) };
}

/** The columns of an entry behind its run and workflow, in their order. */
function fromTrailEntry(entry: TrailEntry): SqliteValue[] {
  const { seq, version, attempt, from, to = from, event, payload, actor, tool, at, hash } = entry;
  const texts = [encodeText(from), encodeText(to), textOrNull(event)];
  const said = [jsonOrNull(payload), textOrNull(actor), textOrNull(tool), at];
  return [version, ...texts, ...said, seq, attempt, draftText(entry), hash ?? null];
}
