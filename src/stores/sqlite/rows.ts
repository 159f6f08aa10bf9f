import type { RunState, WorkflowState } from '../run-state.ts';
import { decodeText, encodeText, jsonOrNull, textOrNull } from '../sql-text.ts';
import type { Json, SessionRecord, TrailEntry } from '../store.ts';
import type { SqliteDatabase, SqliteStatement, SqliteValue } from './database.ts';

/** A run as it is in the file. The trails stay there: what is in one here is new. */
export interface Run extends RunState {
  /** Its key as text that the file keeps. */
  readonly id: string;
  readonly workflows: Map<string, WorkflowState>;
}

const STATEMENTS = {
  selectRun:
    'SELECT principal, minted, opened_by, expires_at FROM workflow_runs WHERE run = ? AND expires_at > ?',
  selectExpired: 'SELECT run FROM workflow_runs WHERE expires_at <= ? LIMIT ?',
  insertRun:
    'INSERT INTO workflow_runs (run, created_at, expires_at, opened_by, principal, minted) VALUES (?, ?, ?, ?, ?, ?)',
  expireRun: 'UPDATE workflow_runs SET expires_at = ? WHERE run = ?',
  deleteRun: 'DELETE FROM workflow_runs WHERE run = ?',
  selectWorkflows: 'SELECT * FROM workflows WHERE run = ?',
  replaceWorkflow: `
    INSERT OR REPLACE INTO workflows
      (run, workflow_type, state, context, version, updated_at, claim, ended, unsettled, settled)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
  deleteWorkflows: 'DELETE FROM workflows WHERE run = ?',
  selectInState: `
    SELECT run, updated_at
      FROM workflows w JOIN workflow_runs r USING (run)
     WHERE state = ? AND updated_at <= ? AND (updated_at, run) > (?, ?)
       AND workflow_type = ? AND expires_at > ?
     ORDER BY updated_at, run LIMIT 100`,
  selectEvents:
    'SELECT * FROM workflow_events WHERE run = ? AND workflow_type = ? ORDER BY version DESC LIMIT ?',
  insertEvent: `
    INSERT INTO workflow_events
      (run, workflow_type, version, from_state, to_state, event, payload, actor, tool, occurred_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
  deleteEvents: 'DELETE FROM workflow_events WHERE run = ?',
} as const;

/** Single reads and writes of the file. Whoever calls them has a transaction open. */
export class SqliteRuns {
  readonly #sql: Readonly<Record<keyof typeof STATEMENTS, SqliteStatement>>;

  constructor(database: SqliteDatabase) {
    database.exec(SCHEMA);
    addMissingColumns(database);
    const prepared = Object.entries(STATEMENTS).map(([name, sql]) => [name, database.prepare(sql)]);
    this.#sql = Object.fromEntries(prepared);
  }

  /** The run, or `undefined` where it is unknown or has expired. */
  find(key: string, now: number): Run | undefined {
    const id = encodeText(key);
    const [row] = this.#sql.selectRun.all(id, now) as RunRow[];
    if (!row) return undefined;
    const rows = this.#sql.selectWorkflows.all(id) as WorkflowRow[];
    const workflows = new Map(
      rows.map((each) => [decodeText(each.workflow_type), toWorkflow(each)]),
    );
    const openedBy = row.opened_by === null ? undefined : decodeText(row.opened_by);
    return { id, session: toSession(row), openedBy, workflows, expiresAt: row.expires_at };
  }

  /** Replaces what is under the key. */
  make(key: string, run: Pick<Run, 'session' | 'openedBy' | 'expiresAt'>, now: number): Run {
    const id = encodeText(key);
    const { session, openedBy, expiresAt } = run;
    this.#remove(id);
    this.#sql.insertRun.run(id, now, expiresAt, textOrNull(openedBy), ...fromSession(session));
    return { id, session, openedBy, workflows: new Map(), expiresAt };
  }

  expire({ id }: Run, expiresAt: number): void {
    this.#sql.expireRun.run(expiresAt, id);
  }

  /** Replaces the workflow, in `run` too. What is in its trail is added to the file. */
  save({ id, workflows }: Run, name: string, workflow: WorkflowState): void {
    workflows.set(name, workflow);
    this.#sql.replaceWorkflow.run(id, encodeText(name), ...fromWorkflow(workflow));
    for (const entry of workflow.trail) {
      this.#sql.insertEvent.run(id, encodeText(name), ...fromTrailEntry(entry));
    }
  }

  /** The newest entries, oldest first. */
  trail({ id }: Run, workflow: string, atMost: number): TrailEntry[] {
    const rows = this.#sql.selectEvents.all(id, encodeText(workflow), atMost) as EventRow[];
    return rows.map(toTrailEntry).reverse();
  }

  /**
   * The next of the runs in a state, those that stand there longest first; after the last one there
   * is none.
   */
  inState(
    workflow: string,
    state: string,
    latest: number,
    now: number,
    after?: FoundRun,
  ): FoundRun[] {
    const { updated_at, run } = after ?? { updated_at: Number.NEGATIVE_INFINITY, run: '' };
    const values = [encodeText(state), latest, updated_at, run, encodeText(workflow), now];
    return this.#sql.selectInState.all(...values) as FoundRun[];
  }

  remove(key: string): void {
    this.#remove(encodeText(key));
  }

  /** Removes runs that expired, and says how many. */
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

interface WorkflowRow {
  readonly workflow_type: string;
  readonly state: string;
  readonly context: string | null;
  readonly version: number;
  readonly updated_at: number;
  readonly claim: string | null;
  readonly ended: number | null;
  readonly unsettled: string;
  readonly settled: string;
}

export interface FoundRun {
  readonly run: string;
  readonly updated_at: number;
}

interface EventRow {
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

/** Without its trail, which stays in the table of events. */
function toWorkflow(row: WorkflowRow): WorkflowState {
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
  };
}

/** `state`, `context`, `version`, `updated_at`, `claim`, `ended`, `unsettled` and `settled`. */
function fromWorkflow({
  snapshot,
  claim,
  ended,
  unsettled,
  settled,
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
  ];
}

function toTrailEntry(row: EventRow): TrailEntry {
  const { version, event, payload, actor, tool } = row;
  return {
    version,
    from: decodeText(row.from_state),
    to: decodeText(row.to_state),
    event: event === null ? null : decodeText(event),
    ...(tool !== null && { tool: decodeText(tool) }),
    ...(actor !== null && { actor: decodeText(actor) }),
    ...(payload !== null && { payload: JSON.parse(payload) as Json }),
    at: row.occurred_at,
  };
}

/** `version`, `from_state`, `to_state`, `event`, `payload`, `actor`, `tool` and `occurred_at`. */
function fromTrailEntry({
  version,
  from,
  to,
  event,
  payload,
  actor,
  tool,
  at,
}: TrailEntry): SqliteValue[] {
  const texts = [encodeText(from), encodeText(to), textOrNull(event)];
  return [version, ...texts, jsonOrNull(payload), textOrNull(actor), textOrNull(tool), at];
}

/**
 * Times are milliseconds since the epoch. A context, a payload and the three columns of a workflow
 * that only the store reads are JSON text. In other text a backslash is doubled, and NUL and half
 * surrogate pairs are written `\uXXXX`.
 */
export const SCHEMA = `
CREATE TABLE IF NOT EXISTS workflow_runs (
  run         TEXT PRIMARY KEY,
  principal   TEXT,
  minted      INTEGER,
  created_at  REAL NOT NULL,
  expires_at  REAL NOT NULL
) STRICT;

CREATE INDEX IF NOT EXISTS workflow_runs_expiry ON workflow_runs (expires_at);

CREATE TABLE IF NOT EXISTS workflows (
  run            TEXT NOT NULL,
  workflow_type  TEXT NOT NULL,
  state          TEXT NOT NULL,
  context        TEXT,
  version        INTEGER NOT NULL,
  updated_at     REAL NOT NULL,
  claim          TEXT,
  unsettled      TEXT NOT NULL,
  settled        TEXT NOT NULL,
  PRIMARY KEY (run, workflow_type)
) STRICT;

CREATE INDEX IF NOT EXISTS workflows_state ON workflows (state, updated_at, run);

CREATE TABLE IF NOT EXISTS workflow_events (
  run            TEXT NOT NULL,
  workflow_type  TEXT NOT NULL,
  version        INTEGER NOT NULL,
  from_state     TEXT NOT NULL,
  to_state       TEXT NOT NULL,
  event          TEXT,
  payload        TEXT,
  actor          TEXT,
  tool           TEXT,
  occurred_at    REAL NOT NULL,
  PRIMARY KEY (run, workflow_type, version)
) STRICT;
`;

/**
 * What later versions keep beside that. `NULL` is what an older version, which may use the file at
 * the same time, says of it.
 */
const ADDED = [
  // The token that opened the run.
  ['workflow_runs', 'opened_by', 'TEXT'],
  // What the last commit said of the workflow's end.
  ['workflows', 'ended', 'INTEGER'],
] as const;

function addMissingColumns(database: SqliteDatabase): void {
  for (const [table, column, type] of ADDED) {
    const known = database.prepare('SELECT 1 FROM pragma_table_info(?) WHERE name = ?');
    if (known.all(table, column).length > 0) continue;
    database.exec(`ALTER TABLE ${table} ADD COLUMN ${column} ${type}`);
  }
}
