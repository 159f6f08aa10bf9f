import { decodeText, encodeText } from '../sql-text.ts';
import type { SessionRecord, TrailEntry } from '../store.ts';
import type { WorkflowState } from '../workflow-state.ts';
import type { SqliteDatabase, SqliteStatement } from './database.ts';
import {
  type EventRow,
  fromSession,
  fromTrailEntry,
  fromWorkflow,
  type RunInState,
  type RunRow,
  textOrNull,
  toSession,
  toTrailEntry,
  toWorkflow,
  type WorkflowRow,
} from './rows.ts';
import { addMissingColumns, SCHEMA } from './schema.ts';

/** A run as it is in the file. The trails stay there: what is in one here is new. */
export interface Run {
  /** Its key as text that the file keeps. */
  readonly id: string;
  readonly session: SessionRecord;
  /** The token that opened it, where one did. */
  readonly openedBy: string | undefined;
  readonly workflows: Map<string, WorkflowState>;
  readonly expiresAt: number;
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
    after?: RunInState,
  ): RunInState[] {
    const { updated_at, run } = after ?? { updated_at: Number.NEGATIVE_INFINITY, run: '' };
    const values = [encodeText(state), latest, updated_at, run, encodeText(workflow), now];
    return this.#sql.selectInState.all(...values) as RunInState[];
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
