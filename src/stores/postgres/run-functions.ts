/** The functions of a run as a whole. */
import {
  anchor,
  FIXED_PATH,
  hashed,
  known,
  milliseconds,
  NOW,
  needed,
  POSTGRES_FORMAT,
  type PostgresNames,
  sessionEnded,
} from './names.ts';

/** As in run-state.ts: how long a run can be read whose session had ended, and is settled. */
const READABLE = "interval '24 hours'";

/**
 * Every function that writes locks the run's row first, and waits for no other lock. So writers of
 * one run take turns, and there is no deadlock. Under READ COMMITTED, a statement after the lock
 * sees what others committed during the wait. Under stricter levels such a wait may end in a
 * serialisation error, and changes nothing.
 *
 * After a lock the time is `clock_timestamp()`, since the function may have waited. Without a lock
 * it is `statement_timestamp()`, from before the look at the tables. A later time could be past a
 * lease that was renewed after the look.
 *
 * What each step calls is in PL/pgSQL, whose plans a connection keeps. A function in SQL with a
 * path of its own is never inlined: before version 18, each statement that calls it plans it anew.
 */
export function createRunFunctions(names: PostgresNames): string {
  return [
    format,
    lockRun,
    sweepRuns,
    makeRun,
    open,
    nextExpiry,
    expireRun,
    touchRun,
    keepEvidence,
    toJson,
    readRun,
    endRun,
    deleteRun,
    anonymize,
    purgeEvents,
  ]
    .map((create) => create(names))
    .join('');
}

/** The planner knows the answer of an immutable function, so asking for it costs nothing. */
const format = ({ format }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${format}() RETURNS integer
LANGUAGE plpgsql IMMUTABLE ${FIXED_PATH} AS 'BEGIN RETURN ${POSTGRES_FORMAT}; END';
COMMENT ON FUNCTION ${format} IS
  'The format of the tables. A process that knows another one refuses to work.';
`;

const lockRun = (names: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${names.lockRun}(wanted text) RETURNS boolean
LANGUAGE plpgsql ${FIXED_PATH} AS $$
DECLARE
  lives_until  timestamptz;
  moment       timestamptz;
BEGIN
  -- Again where the row that it waited for is gone: another process may have made the run anew.
  LOOP
    SELECT expires_at INTO lives_until FROM ${names.runs} WHERE run = wanted FOR UPDATE;
    EXIT WHEN FOUND OR NOT EXISTS (SELECT FROM ${names.runs} WHERE run = wanted);
  END LOOP;
  moment := clock_timestamp();
  -- A statement after the wait, so that it sees what was committed meanwhile.
  RETURN coalesce(lives_until > moment, false)
      OR lives_until IS NOT NULL AND ${needed(names, 'wanted', 'moment')};
END
$$;
COMMENT ON FUNCTION ${names.lockRun} IS
  'Waits for the run''s row, and says whether the run is known then. Where it is not, there may be '
  'no row to lock.';
`;

const sweepRuns = (names: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${names.sweepRuns}(at_most integer, spared text, owner text)
RETURNS json
LANGUAGE plpgsql ${FIXED_PATH} AS $$
DECLARE
  moment   timestamptz := clock_timestamp();
  expired  text[];
  removed  integer;
BEGIN
  IF owner IS NULL THEN
    expired := ARRAY(
      SELECT run FROM ${names.runs}
       WHERE expires_at <= moment AND run IS DISTINCT FROM spared
       ORDER BY expires_at LIMIT at_most FOR UPDATE SKIP LOCKED
    );
  ELSE
    expired := ARRAY(
      SELECT run FROM ${names.runs}
       WHERE principal IS NOT NULL
         AND ${hashed('principal')} = ${hashed('owner')} AND principal = owner
         AND expires_at <= moment
       LIMIT at_most FOR UPDATE SKIP LOCKED
    );
  END IF;
  UPDATE ${names.runs} r SET (expires_at, session_ended) = (moment + ${READABLE}, true)
   WHERE r.run = ANY (expired) AND ${needed(names, 'r.run', 'moment')};
  DELETE FROM ${names.runs} WHERE run = ANY (expired) AND expires_at <= moment;
  GET DIAGNOSTICS removed = ROW_COUNT;
  RETURN json_build_object('looked', coalesce(cardinality(expired), 0), 'removed', removed);
END
$$;
COMMENT ON FUNCTION ${names.sweepRuns} IS
  'Looks at some runs that expired, all but one, and removes those that are not needed any more. A '
  'needed one expires later, so that it stands in the way of no other. Waits for no lock.';
`;

const makeRun = (names: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${names.makeRun}(request json) RETURNS void
LANGUAGE plpgsql ${FIXED_PATH} AS $$
DECLARE
  asked  record;
BEGIN
  SELECT * INTO asked
    FROM json_to_record(request) AS r(
      run text, long_key text, principal text, minted boolean, client_info text,
      opened_by text, ttl_ms double precision
    );
  LOOP
    INSERT INTO ${names.runs} (run, long_key, principal, minted, client_info, opened_by, expires_at)
    VALUES (asked.run, asked.long_key, asked.principal, asked.minted, asked.client_info::json,
            asked.opened_by, clock_timestamp() + asked.ttl_ms * interval '1 millisecond')
        ON CONFLICT (run) DO NOTHING;
    EXIT WHEN FOUND;
    IF ${names.lockRun}(asked.run) THEN
      RETURN;
    END IF;
    -- Without a lock, the row may be a newer one.
    DELETE FROM ${names.runs} r
     WHERE r.run = asked.run AND NOT ${known(names, 'clock_timestamp()')};
  END LOOP;
  -- Each new run looks at two expired ones, so that these do not pile up.
  PERFORM ${names.sweepRuns}(at_most => 2, spared => asked.run, owner => NULL::text);
END
$$;
COMMENT ON FUNCTION ${names.makeRun} IS
  'Starts a run in place of what is left under its key. A known run stays as it is; its row is '
  'locked either way.';
`;

const open = ({ open, makeRun, runs }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${open}(request json) RETURNS json
LANGUAGE plpgsql ${FIXED_PATH} AS $$
BEGIN
  PERFORM ${makeRun}(request);
  RETURN json_build_object('status', (
    SELECT CASE WHEN opened_by = request->>'opened_by' THEN 'opened' ELSE 'taken' END
      FROM ${runs} WHERE run = request->>'run'
  ));
END
$$;
COMMENT ON FUNCTION ${open} IS
  'Starts a run, unless another one is known under its key: opened, also where it was by the same '
  'token, or taken.';
`;

const nextExpiry = ({ nextExpiry, runs, workflows }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${nextExpiry}(r ${runs}, moment timestamptz, ttl_ms double precision)
RETURNS timestamptz
LANGUAGE plpgsql ${FIXED_PATH} AS $$
DECLARE
  ttl     interval := ttl_ms * interval '1 millisecond';
  claims  record;
  wanted  timestamptz := r.expires_at;
BEGIN
  SELECT max(lease_until) AS leased,
         bool_or(unsettled <> '[]' OR claim_uncertain = 'retry') AS has_keys
    INTO claims FROM ${workflows} WHERE run = r.run;
  -- Stays while nine tenths remain, or every read of a run would write.
  IF r.expires_at NOT BETWEEN moment + 0.9 * ttl AND moment + ttl THEN
    wanted := greatest(moment + ttl, CASE WHEN claims.has_keys THEN r.expires_at END);
  END IF;
  RETURN greatest(wanted, claims.leased);
END
$$;
COMMENT ON FUNCTION ${nextExpiry} IS
  'When a run expires after a use: not before a lease in it ends, and no earlier while a key is '
  'unsettled. Without a time to live, later only.';
`;

const expireRun = ({ expireRun, nextExpiry, runs }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${expireRun}(
  locked text, ttl_ms double precision, revives boolean, leased timestamptz DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql ${FIXED_PATH} AS $$
DECLARE
  moment   timestamptz := clock_timestamp();
  r        ${runs};
  wanted   timestamptz;
  is_over  boolean;
BEGIN
  SELECT * INTO r FROM ${runs} WHERE run = locked;
  is_over := ${sessionEnded('moment')};
  IF is_over AND NOT revives THEN
    RETURN;
  END IF;
  wanted := greatest(${nextExpiry}(r, moment, ttl_ms), leased);
  IF is_over OR wanted <> r.expires_at THEN
    UPDATE ${runs} SET (expires_at, session_ended) = (wanted, false) WHERE run = locked;
  END IF;
END
$$;
COMMENT ON FUNCTION ${expireRun} IS
  'Sets when a locked run expires, unless its session is over and stays over. Not before a lease '
  'that was there, if one is given.';
`;

const touchRun = ({ touchRun, nextExpiry, expireRun, runs }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${touchRun}(touched text, ttl_ms double precision)
RETURNS void
LANGUAGE plpgsql ${FIXED_PATH} AS $$
DECLARE
  moment  timestamptz := clock_timestamp();
  ttl     interval := ttl_ms * interval '1 millisecond';
BEGIN
  -- Locks only where the expiry must move, and does not wait: who has the lock works in the run.
  PERFORM FROM ${runs} r
    WHERE r.run = touched AND NOT ${sessionEnded('moment')}
      AND r.expires_at NOT BETWEEN moment + 0.9 * ttl AND moment + ttl
      AND r.expires_at <> ${nextExpiry}(r, moment, ttl_ms)
      FOR UPDATE SKIP LOCKED;
  IF FOUND THEN
    PERFORM ${expireRun}(touched, ttl_ms, revives => false);
  END IF;
END
$$;
COMMENT ON FUNCTION ${touchRun} IS
  'Sets when the run of a live session expires, without waiting for a lock.';
`;

const keepEvidence = ({ keepEvidence, runs }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${keepEvidence}(locked text, moment timestamptz)
RETURNS boolean
LANGUAGE plpgsql ${FIXED_PATH} AS $$
BEGIN
  UPDATE ${runs} r SET (expires_at, session_ended) = (moment + ${READABLE}, true)
   WHERE r.run = locked AND ${sessionEnded('moment')};
  RETURN FOUND;
END
$$;
COMMENT ON FUNCTION ${keepEvidence} IS
  'Where the session of a locked run is over and a step of it was settled: lets the run be read '
  'for another while. Says whether the session is over.';
`;

const toJson = ({ toJson, workflows }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${toJson}(flow ${workflows}, moment timestamptz)
RETURNS json
LANGUAGE plpgsql ${FIXED_PATH} AS $$
BEGIN
  RETURN CASE WHEN flow.id IS NOT NULL THEN json_build_object(
    'workflow', flow.workflow_type,
    'state', flow.state,
    'context', flow.context::text,
    'version', flow.version,
    'updatedAt', ${milliseconds('flow.updated_at')},
    'ended', flow.ended,
    'frozen', flow.frozen::text,
    'claim', CASE WHEN flow.claim_token IS NOT NULL THEN json_build_object(
      'token', flow.claim_token,
      'tool', flow.claim_tool,
      'digest', flow.claim_digest,
      'uncertain', flow.claim_uncertain,
      'use', flow.claim_use::text,
      'idempotencyKey', flow.idempotency_key,
      'remainingMs', ceil(extract(epoch FROM flow.lease_until - moment) * 1000),
      'since', ${milliseconds('flow.claimed_at')},
      'until', ${milliseconds('flow.lease_until')},
      'entry', flow.claim_entry,
      'kind', flow.claim_kind
    ) END
  ) END;
END
$$;
COMMENT ON FUNCTION ${toJson} IS
  'A row of workflows as the middleware reads it; NULL for a row of NULLs.';
`;

const readRun = (names: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${names.readRun}(wanted text, ttl_ms double precision, about text)
RETURNS json
LANGUAGE plpgsql ${FIXED_PATH} AS $$
DECLARE
  moment  timestamptz := statement_timestamp();
  seen    json;
BEGIN
  SELECT json_build_object(
           'principal', r.principal,
           'minted', r.minted,
           'clientInfo', r.client_info,
           'sessionEnded', ${sessionEnded('moment')},
           'now', ${NOW},
           'workflows', (
             SELECT json_agg(${names.toJson}(w, moment) ORDER BY w.id)
               FROM ${names.workflows} w WHERE w.run = r.run
           )
         )
    INTO seen
    FROM ${names.runs} r
   WHERE r.run = wanted AND ${known(names, 'moment')};
  IF NOT EXISTS (
    SELECT FROM ${names.workflows} WHERE run = wanted AND workflow_type = about AND ended
  ) THEN
    PERFORM ${names.touchRun}(wanted, ttl_ms);
  END IF;
  RETURN seen;
END
$$;
COMMENT ON FUNCTION ${names.readRun} IS
  'A known run with all its workflows; NULL where it is unknown. Never waits for a step.';
`;

const endRun = (names: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${names.endRun}(wanted text, if_unclaimed boolean)
RETURNS json
LANGUAGE plpgsql ${FIXED_PATH} AS $$
DECLARE
  moment  timestamptz;
BEGIN
  IF NOT ${names.lockRun}(wanted) THEN
    RETURN to_json('unknown'::text);
  END IF;
  moment := clock_timestamp();
  IF if_unclaimed AND EXISTS (
    SELECT FROM ${names.workflows}
     WHERE run = wanted AND (claim_token IS NOT NULL OR frozen IS NOT NULL)
  ) THEN
    RETURN to_json('claimed'::text);
  END IF;
  -- One that was ended before can be read until it expires.
  IF ${needed(names, 'wanted', 'moment')} THEN
    UPDATE ${names.runs} SET (expires_at, session_ended) = (least(expires_at, moment), true)
     WHERE run = wanted AND NOT session_ended;
  ELSE
    DELETE FROM ${names.runs} WHERE run = wanted AND NOT session_ended;
  END IF;
  RETURN to_json('ended'::text);
END
$$;
COMMENT ON FUNCTION ${names.endRun} IS
  'Ends the session that names a run: ended, claimed or unknown. The run goes with it, unless it '
  'is evidence or frozen, or a step of it runs.';
`;

const deleteRun = (names: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${names.deleteRun}(wanted text) RETURNS json
LANGUAGE plpgsql ${FIXED_PATH} AS $$
BEGIN
  IF NOT ${names.lockRun}(wanted) THEN
    RETURN to_json('unknown'::text);
  END IF;
  IF EXISTS (SELECT FROM ${names.workflows} WHERE run = wanted AND claim_uncertain = 'hold') THEN
    RETURN to_json('pinned'::text);
  END IF;
  DELETE FROM ${names.runs} WHERE run = wanted;
  RETURN to_json('deleted'::text);
END
$$;
COMMENT ON FUNCTION ${names.deleteRun} IS
  'Removes a run, unless a hold step has a claim in it: deleted, pinned or unknown. Its trail '
  'stays among the events.';
`;

const anonymize = (names: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${names.anonymize}(wanted text, unnamed text, unnamed_digest text)
RETURNS boolean
LANGUAGE plpgsql ${FIXED_PATH} AS $$
DECLARE
  moment  timestamptz;
  claims  record;
BEGIN
  IF NOT ${names.lockRun}(wanted) THEN
    RETURN false;
  END IF;
  moment := clock_timestamp();
  SELECT bool_or(claim_uncertain = 'hold') AS are_held, bool_or(lease_until > moment) AS are_live
    INTO claims FROM ${names.workflows} WHERE run = wanted;
  IF claims.are_held IS NOT TRUE OR claims.are_live THEN
    RETURN false;
  END IF;
  INSERT INTO ${names.runs} (run, created_at, expires_at, session_ended)
  SELECT unnamed, created_at, moment, true FROM ${names.runs} WHERE run = wanted;
  DELETE FROM ${names.events}
   WHERE workflow_id IN (SELECT id FROM ${names.workflows} WHERE run = wanted);
  UPDATE ${names.workflows}
     SET (run, claim_entry, frozen, trail_seq, attempts, trail_hash)
       = (unnamed, NULL, NULL, 0, 0, ${anchor('unnamed_digest', 'name_digest')})
   WHERE run = wanted;
  DELETE FROM ${names.runs} WHERE run = wanted;
  RETURN true;
END
$$;
COMMENT ON FUNCTION ${names.anonymize} IS
  'Gives a held run another key, and takes away what names a person: its owner, its trail, its '
  'freeze, and what its claims say of their callers. False where it is not held or a step runs.';
`;

const purgeEvents = ({ purgeEvents, workflows, events }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${purgeEvents}(owner text, at_most integer)
RETURNS integer
LANGUAGE plpgsql ${FIXED_PATH} AS $$
DECLARE
  removed  integer;
BEGIN
  DELETE FROM ${events} WHERE ctid = ANY (ARRAY(
    SELECT e.ctid FROM ${events} e
     WHERE e.principal IS NOT NULL
       AND ${hashed('e.principal')} = ${hashed('owner')} AND e.principal = owner
       AND NOT EXISTS (SELECT FROM ${workflows} w WHERE w.id = e.workflow_id)
     LIMIT at_most
  ));
  GET DIAGNOSTICS removed = ROW_COUNT;
  RETURN removed;
END
$$;
COMMENT ON FUNCTION ${purgeEvents} IS
  'Removes some of the trails of a person''s runs that are gone, and says how many entries.';
`;
