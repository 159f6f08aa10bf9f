/**
 * The trail in the database: how an entry is stamped, chained and read. Hides which columns hold
 * it, and that the database writes the same JSON text as the process.
 */
import type { PostgresNames } from './names.ts';

/** Milliseconds since the epoch. */
export function milliseconds(time: string): string {
  return `floor(extract(epoch FROM ${time}) * 1000)`;
}

/** Each function takes JSON, so that a newer version of it still serves older processes. */
export function createTrailFunctions(names: PostgresNames): string {
  return [entryText, addEntry, append, trail, moves].map((create) => create(names)).join('');
}

/**
 * A column's text as `JSON.stringify()` writes the string that it stands for. The column's own
 * escapes double the backslash, as `to_json()` does once more: a pair is one. `chr(92)` is the
 * backslash, however the session writes strings.
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
  'What an entry of the trail says, as the one JSON text that is hashed where the trail is chained.';
`;

const addEntry = ({ addEntry, entryText, workflows, events }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${addEntry}(flow ${workflows}, said json, token text, moment timestamptz)
RETURNS ${workflows} LANGUAGE plpgsql AS $$
DECLARE
  entry  ${events};
BEGIN
  SELECT r.from_state, r.to_state, r.event, r.outcome, r.kind, r.tool, r.digest, r.args::json, r.actor,
         r.request_id::json, r.workflow_version::json, r.payload::json, r.note, r.called_by
    INTO entry.from_state, entry.to_state, entry.event, entry.outcome, entry.kind, entry.tool, entry.digest, entry.args,
         entry.actor, entry.request_id, entry.workflow_version, entry.payload, entry.note, entry.called_by
    FROM json_to_record(said) AS r(
      from_state text, to_state text, event text, outcome text, kind text, tool text, digest text, args text, actor text,
      request_id text, workflow_version text, payload text, note text, called_by text
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
        || concat_ws(' ', entry.seq, entry.version, entry.attempt, ${milliseconds('moment')}::bigint) || chr(10)
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
  'Stamps an entry, adds it to the trail of a workflow whose run is locked, and answers where the trail stands then.';
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
COMMENT ON FUNCTION ${append} IS 'Adds an entry to the trail of a known workflow, and changes nothing else.';
`;

const trail = ({ trail, runs, workflows, events }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${trail}(wanted text, of_workflow text, at_most bigint) RETURNS json LANGUAGE sql AS $$
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
       WHERE r.run = wanted AND r.expires_at > statement_timestamp() AND w.workflow_type = of_workflow
       ORDER BY e.seq DESC
       LIMIT at_most
    ) entry
$$;
COMMENT ON FUNCTION ${trail} IS 'The newest entries of the trail of a workflow of a known run, oldest first.';
`;

/** Processes of versions before the trail had entries that are no moves. */
const moves = ({ moves, runs, workflows, events }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${moves}(wanted text, of_workflow text, at_most bigint) RETURNS json LANGUAGE sql AS $$
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
       WHERE r.run = wanted AND r.expires_at > statement_timestamp() AND w.workflow_type = of_workflow
         AND e.to_state IS NOT NULL
       ORDER BY e.seq DESC
       LIMIT at_most
    ) entry
$$;
COMMENT ON FUNCTION ${moves} IS 'As workflow_trail, but only the moves: for processes of older versions.';
`;
