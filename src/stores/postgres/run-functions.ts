/** The functions of a run as a whole, and those of its trail. */
import { FORMAT, milliseconds, NOW, type PostgresNames } from './names.ts';

/**
 * Every function that writes locks the run's row first, and waits for no other lock. So writers of
 * one run take turns, and there is no deadlock. Under READ COMMITTED, a statement after the lock
 * sees what others committed during the wait. Under stricter levels such a wait may end in a
 * serialisation error, and changes nothing.
 *
 * After a lock the time is `clock_timestamp()`, since the function may have waited. Without a lock
 * it is `statement_timestamp()`, from before the look at the tables. A later time could be past a
 * lease that was renewed after the look.
 */
export function createRunFunctions(names: PostgresNames): string {
  return [
    format,
    makeRun,
    open,
    lockRun,
    expireRun,
    touchRun,
    toJson,
    readRun,
    deleteRun,
    sweepRuns,
  ]
    .map((create) => create(names))
    .join('');
}

/** The planner knows the answer of an immutable function, so asking for it costs nothing. */
const format = ({ format }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${format}() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT ${FORMAT}';
COMMENT ON FUNCTION ${format} IS
  'The format of the tables. A process of an older version that does not know it refuses to work.';
`;

const makeRun = ({ makeRun, sweepRuns, runs, workflows }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${makeRun}(request json, replace_living boolean)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  asked  record;
  ttl    interval;
BEGIN
  SELECT * INTO asked
    FROM json_to_record(request) AS r(
      run text, long_key text, principal text, minted boolean, opened_by text,
      ttl_ms double precision
    );
  ttl := asked.ttl_ms * interval '1 millisecond';

  INSERT INTO ${runs} AS r (run, long_key, principal, minted, opened_by, expires_at)
  VALUES (asked.run, asked.long_key, asked.principal, asked.minted, asked.opened_by,
          clock_timestamp() + ttl)
      ON CONFLICT (run) DO UPDATE
     SET (principal, minted, opened_by, created_at, expires_at)
       = (EXCLUDED.principal, EXCLUDED.minted, EXCLUDED.opened_by, EXCLUDED.created_at,
          EXCLUDED.expires_at)
   WHERE replace_living OR r.expires_at <= clock_timestamp();
  IF FOUND THEN
    DELETE FROM ${workflows} WHERE run = asked.run;
    -- Each new run removes two expired ones, so that these do not pile up.
    PERFORM ${sweepRuns}(at_most => 2, spared => asked.run);
  END IF;
END
$$;
COMMENT ON FUNCTION ${makeRun} IS
  'Starts a run in place of what is left under its key. A run that lives is replaced or left as it '
  'is; its row is locked either way.';
`;

const open = ({ open, makeRun, runs }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${open}(request json) RETURNS json LANGUAGE plpgsql AS $$
BEGIN
  PERFORM ${makeRun}(request, replace_living => false);
  RETURN json_build_object('status', (
    SELECT CASE WHEN opened_by = request->>'opened_by' THEN 'opened' ELSE 'taken' END
      FROM ${runs} WHERE run = request->>'run'
  ));
END
$$;
COMMENT ON FUNCTION ${open} IS
  'Starts a run, unless another one lives under its key: opened, also where it was by the same '
  'token, or taken.';
`;

const lockRun = ({ lockRun, runs }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${lockRun}(wanted text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  lives_until timestamptz;
BEGIN
  SELECT expires_at INTO lives_until FROM ${runs} WHERE run = wanted FOR UPDATE;
  RETURN coalesce(lives_until > clock_timestamp(), false);
END
$$;
COMMENT ON FUNCTION ${lockRun} IS
  'Waits for the run''s row, and says whether the run is known then.';
`;

const expireRun = ({ expireRun, runs, workflows }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${expireRun}(locked text, ttl_ms double precision)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  moment  timestamptz := clock_timestamp();
  ttl     interval := ttl_ms * interval '1 millisecond';
  leased  timestamptz := (SELECT max(lease_until) FROM ${workflows} WHERE run = locked);
BEGIN
  -- Stays while nine tenths remain, or every read of a run would write.
  UPDATE ${runs}
     SET expires_at = greatest(moment + ttl, leased)
   WHERE run = locked
     AND (expires_at NOT BETWEEN moment + 0.9 * ttl AND moment + ttl OR expires_at < leased);
END
$$;
COMMENT ON FUNCTION ${expireRun} IS
  'Sets when a locked run expires: not before a claim in it does. Without a time to live, only '
  'where a claim lives longer.';
`;

const touchRun = ({ touchRun, expireRun, runs }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${touchRun}(touched text, ttl_ms double precision)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  moment  timestamptz := clock_timestamp();
  ttl     interval := ttl_ms * interval '1 millisecond';
BEGIN
  -- Locks only where the expiry must move, and does not wait: who has the lock works in the run.
  PERFORM FROM ${runs}
    WHERE run = touched AND expires_at > moment
      AND expires_at NOT BETWEEN moment + 0.9 * ttl AND moment + ttl
      FOR UPDATE SKIP LOCKED;
  IF FOUND THEN
    PERFORM ${expireRun}(touched, ttl_ms);
  END IF;
END
$$;
COMMENT ON FUNCTION ${touchRun} IS 'Sets when a known run expires, without waiting for a lock.';
`;

const toJson = ({ toJson, workflows }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${toJson}(flow ${workflows}, moment timestamptz)
RETURNS json LANGUAGE sql AS $$
  SELECT CASE WHEN flow.id IS NOT NULL THEN json_build_object(
    'workflow', flow.workflow_type,
    'state', flow.state,
    'context', flow.context::text,
    'version', flow.version,
    'updatedAt', ${milliseconds('flow.updated_at')},
    'ended', flow.ended,
    'claim', CASE WHEN flow.claim_token IS NOT NULL THEN json_build_object(
      'token', flow.claim_token,
      'tool', flow.claim_tool,
      'digest', flow.claim_digest,
      'uncertain', flow.claim_uncertain,
      'idempotencyKey', flow.idempotency_key,
      'remainingMs', ceil(extract(epoch FROM flow.lease_until - moment) * 1000),
      'since', ${milliseconds('flow.claimed_at')},
      'until', ${milliseconds('flow.lease_until')},
      'entry', flow.claim_entry
    ) END
  ) END
$$;
COMMENT ON FUNCTION ${toJson} IS
  'A row of workflows as the middleware reads it; NULL for a row of NULLs.';
`;

const readRun = ({ readRun, touchRun, toJson, runs, workflows }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${readRun}(wanted text, ttl_ms double precision, about text DEFAULT NULL)
RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  moment  timestamptz := statement_timestamp();
  seen    json;
BEGIN
  SELECT json_build_object(
           'principal', r.principal,
           'minted', r.minted,
           'now', ${NOW},
           'workflows', (
             SELECT json_agg(${toJson}(w, moment) ORDER BY w.id)
               FROM ${workflows} w WHERE w.run = r.run
           )
         )
    INTO seen
    FROM ${runs} r
   WHERE r.run = wanted AND r.expires_at > moment;
  IF NOT EXISTS (
    SELECT FROM ${workflows} WHERE run = wanted AND workflow_type = about AND ended
  ) THEN
    PERFORM ${touchRun}(wanted, ttl_ms);
  END IF;
  RETURN seen;
END
$$;
COMMENT ON FUNCTION ${readRun} IS
  'A known run with all its workflows; NULL where it is unknown. Never waits for a step.';
`;

const deleteRun = ({ deleteRun, runs }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${deleteRun}(wanted text) RETURNS void LANGUAGE sql AS $$
  DELETE FROM ${runs} WHERE run = wanted
$$;
COMMENT ON FUNCTION ${deleteRun} IS 'Ends a run. Its trail stays among the events.';
`;

const sweepRuns = ({ sweepRuns, runs }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${sweepRuns}(at_most integer, spared text)
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  swept integer;
BEGIN
  DELETE FROM ${runs} WHERE run = ANY (ARRAY(
    SELECT run FROM ${runs}
     WHERE expires_at <= clock_timestamp() AND run IS DISTINCT FROM spared
     LIMIT at_most FOR UPDATE SKIP LOCKED
  ));
  GET DIAGNOSTICS swept = ROW_COUNT;
  RETURN swept;
END
$$;
COMMENT ON FUNCTION ${sweepRuns} IS
  'Removes runs that expired, all but one, and says how many. Waits for no lock.';
`;

/**
 * How the database stamps, chains and reads an entry of the trail. It writes the same JSON text as
 * the process. Each function takes JSON, so that newer functions still serve older processes.
 */
export function createTrailFunctions(names: PostgresNames): string {
  return [entryText, addEntry, append, trail, moves].map((create) => create(names)).join('');
}

/**
 * A column's text, as `JSON.stringify()` writes the string that was encoded in it. The encoding
 * doubles a backslash, and `to_json()` doubles it again; this undoes one of the two. `chr(92)` is
 * the backslash under any setting of the session.
 */
function quoted(column: string): string {
  return `replace(to_json(entry.${column})::text, repeat(chr(92), 2), chr(92))`;
}

const text = (member: string, column = member): string =>
  `coalesce(',"${member}":' || ${quoted(column)}, '')`;
const json = (member: string, column = member): string =>
  `coalesce(',"${member}":' || entry.${column}::text, '')`;

const entryText = ({ entryText, events }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${entryText}(entry ${events}) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT '{"from":' || ${quoted('from_state')}
    || ${text('to', 'to_state')}
    || ',"event":' || coalesce(${quoted('event')}, 'null')
    || ${text('outcome')}
    || ${text('kind')}
    || ${text('tool')}
    || ${text('digest')}
    || ${json('args')}
    || ${text('actor')}
    || ${json('requestId', 'request_id')}
    || ${json('workflowVersion', 'workflow_version')}
    || ${json('payload')}
    || ${text('note')}
    || ${text('calledBy', 'called_by')}
    || '}'
$$;
COMMENT ON FUNCTION ${entryText} IS
  'What an entry of the trail says, as the one JSON text that is hashed where the trail is '
  'chained.';
`;

const addEntry = ({ addEntry, entryText, workflows, events }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${addEntry}(flow ${workflows}, said json, token text, moment timestamptz)
RETURNS ${workflows} LANGUAGE plpgsql AS $$
DECLARE
  entry  ${events};
BEGIN
  SELECT r.from_state, r.to_state, r.event, r.outcome, r.kind, r.tool, r.digest, r.args::json,
         r.actor, r.request_id::json, r.workflow_version::json, r.payload::json, r.note,
         r.called_by
    INTO entry.from_state, entry.to_state, entry.event, entry.outcome, entry.kind, entry.tool,
         entry.digest, entry.args, entry.actor, entry.request_id, entry.workflow_version,
         entry.payload, entry.note, entry.called_by
    FROM json_to_record(said) AS r(
      from_state text, to_state text, event text, outcome text, kind text, tool text, digest text,
      args text, actor text, request_id text, workflow_version text, payload text, note text,
      called_by text
    );
  entry.workflow_id := flow.id;
  entry.run := flow.run;
  entry.workflow_type := flow.workflow_type;
  entry.occurred_at := moment;
  entry.seq := coalesce(flow.trail_seq, flow.version) + 1;
  entry.version := flow.version;
  entry.attempt := flow.attempts;
  IF entry.to_state IS NOT NULL THEN
    entry.version := flow.version + 1;
    entry.claim_token := token;
  END IF;
  IF entry.to_state IS NOT NULL OR entry.outcome IS DISTINCT FROM 'refused' THEN
    entry.attempt := flow.attempts + 1;
  END IF;
  IF flow.trail_hash IS NOT NULL THEN
    entry.hash := 'sha256:' || encode(sha256(convert_to(
      flow.trail_hash || chr(10)
        || concat_ws(' ', entry.seq, entry.version, entry.attempt,
                     ${milliseconds('moment')}::bigint) || chr(10)
        || ${entryText}(entry),
      'UTF8')), 'hex');
  END IF;
  INSERT INTO ${events} SELECT entry.*;

  flow.trail_seq := entry.seq;
  flow.attempts := CASE WHEN entry.to_state IS NULL THEN entry.attempt ELSE 0 END;
  flow.trail_hash := entry.hash;
  RETURN flow;
END
$$;
COMMENT ON FUNCTION ${addEntry} IS
  'Stamps an entry, adds it to the trail of a workflow whose run is locked, and answers where '
  'the trail stands then.';
`;

const append = ({ append, addEntry, lockRun, workflows }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${append}(request json) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  flow  ${workflows};
BEGIN
  IF ${lockRun}(request->>'run') THEN
    SELECT * INTO flow FROM ${workflows}
     WHERE run = request->>'run' AND workflow_type = request->>'workflow';
    IF FOUND THEN
      flow := ${addEntry}(flow, request, NULL, clock_timestamp());
      UPDATE ${workflows}
         SET (trail_seq, attempts, trail_hash) = (flow.trail_seq, flow.attempts, flow.trail_hash)
       WHERE id = flow.id;
    END IF;
  END IF;
END
$$;
COMMENT ON FUNCTION ${append} IS
  'Adds an entry to the trail of a known workflow, and changes nothing else.';
`;

const trail = ({ trail, runs, workflows, events }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${trail}(wanted text, of_workflow text, at_most bigint)
RETURNS json LANGUAGE sql AS $$
  SELECT coalesce(json_agg(json_build_object(
           'seq', entry.seq,
           'version', coalesce(entry.version, entry.seq),
           'attempt', coalesce(entry.attempt, 1),
           'at', ${milliseconds('entry.occurred_at')},
           'from', entry.from_state,
           'to', entry.to_state,
           'event', entry.event,
           'outcome', entry.outcome,
           'kind', entry.kind,
           'tool', entry.tool,
           'digest', entry.digest,
           'args', entry.args::text,
           'actor', entry.actor,
           'requestId', entry.request_id::text,
           'workflowVersion', entry.workflow_version::text,
           'payload', entry.payload::text,
           'note', entry.note,
           'calledBy', entry.called_by,
           'hash', entry.hash
         ) ORDER BY entry.seq), '[]')
    FROM (
      SELECT e.*
        FROM ${runs} r JOIN ${workflows} w USING (run) JOIN ${events} e ON e.workflow_id = w.id
       WHERE r.run = wanted AND r.expires_at > statement_timestamp()
         AND w.workflow_type = of_workflow
       ORDER BY e.seq DESC
       LIMIT at_most
    ) entry
$$;
COMMENT ON FUNCTION ${trail} IS
  'The newest entries of the trail of a workflow of a known run, oldest first.';
`;

/** For processes of older versions, whose trail has moves only. */
const moves = ({ moves, runs, workflows, events }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${moves}(wanted text, of_workflow text, at_most bigint)
RETURNS json LANGUAGE sql AS $$
  SELECT coalesce(json_agg(json_build_object(
           'version', coalesce(entry.version, entry.seq),
           'from', entry.from_state,
           'to', entry.to_state,
           'event', entry.event,
           'tool', entry.tool,
           'actor', entry.actor,
           'payload', entry.payload::text,
           'at', ${milliseconds('entry.occurred_at')}
         ) ORDER BY entry.seq), '[]')
    FROM (
      SELECT e.*
        FROM ${runs} r JOIN ${workflows} w USING (run) JOIN ${events} e ON e.workflow_id = w.id
       WHERE r.run = wanted AND r.expires_at > statement_timestamp()
         AND w.workflow_type = of_workflow
         AND e.to_state IS NOT NULL
       ORDER BY e.seq DESC
       LIMIT at_most
    ) entry
$$;
COMMENT ON FUNCTION ${moves} IS
  'As workflow_trail, but only the moves: for processes of older versions.';
`;
