/**
 * How the database stamps, chains and reads an entry of the trail. It writes the same JSON text as
 * the process.
 */
import { FIXED_PATH, known, milliseconds, type PostgresNames } from './names.ts';

/** Each function takes JSON, so that newer functions still serve older processes. */
export function createTrailFunctions(names: PostgresNames): string {
  return [entryText, addEntry, append, trail].map((create) => create(names)).join('');
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
CREATE OR REPLACE FUNCTION ${entryText}(entry ${events}) RETURNS text
LANGUAGE plpgsql STABLE ${FIXED_PATH} AS $$
BEGIN
  RETURN '{"from":' || ${quoted('from_state')}
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
    || ${json('errors')}
    || ${text('note')}
    || ${text('calledBy', 'called_by')}
    || '}';
END
$$;
COMMENT ON FUNCTION ${entryText} IS
  'What an entry of the trail says, as the one JSON text that is hashed where the trail is '
  'chained.';
`;

const addEntry = ({ addEntry, entryText, runs, workflows, events }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${addEntry}(flow ${workflows}, said json, moment timestamptz)
RETURNS ${workflows}
LANGUAGE plpgsql ${FIXED_PATH} AS $$
DECLARE
  entry  ${events};
BEGIN
  SELECT r.from_state, r.to_state, r.event, r.outcome, r.kind, r.tool, r.digest, r.args::json,
         r.actor, r.request_id::json, r.workflow_version::json, r.payload::json,
         r.errors::json, r.note, r.called_by
    INTO entry.from_state, entry.to_state, entry.event, entry.outcome, entry.kind, entry.tool,
         entry.digest, entry.args, entry.actor, entry.request_id, entry.workflow_version,
         entry.payload, entry.errors, entry.note, entry.called_by
    FROM json_to_record(said) AS r(
      from_state text, to_state text, event text, outcome text, kind text, tool text, digest text,
      args text, actor text, request_id text, workflow_version text, payload text,
      errors text, note text, called_by text
    );
  entry.workflow_id := flow.id;
  entry.run := flow.run;
  entry.principal := (SELECT principal FROM ${runs} WHERE run = flow.run);
  entry.workflow_type := flow.workflow_type;
  entry.occurred_at := moment;
  entry.seq := flow.trail_seq + 1;
  entry.version := flow.version;
  entry.attempt := flow.attempts;
  IF entry.to_state IS NOT NULL THEN
    entry.version := flow.version + 1;
  END IF;
  IF entry.to_state IS NOT NULL OR entry.outcome <> 'refused' THEN
    entry.attempt := flow.attempts + 1;
  END IF;
  entry.previous := flow.trail_hash;
  IF entry.previous IS NOT NULL THEN
    entry.hash := 'sha256:' || encode(sha256(convert_to(
      entry.previous || chr(10)
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
CREATE OR REPLACE FUNCTION ${append}(request json) RETURNS void
LANGUAGE plpgsql ${FIXED_PATH} AS $$
DECLARE
  flow  ${workflows};
BEGIN
  IF ${lockRun}(request->>'run') THEN
    SELECT * INTO flow FROM ${workflows}
     WHERE run = request->>'run' AND workflow_type = request->>'workflow';
    IF FOUND THEN
      flow := ${addEntry}(flow, request, clock_timestamp());
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

const trail = (names: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${names.trail}(wanted text, of_workflow text, at_most bigint)
RETURNS json
LANGUAGE sql ${FIXED_PATH} AS $$
  SELECT coalesce(json_agg(json_build_object(
           'seq', entry.seq,
           'version', entry.version,
           'attempt', entry.attempt,
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
           'errors', entry.errors::text,
           'note', entry.note,
           'calledBy', entry.called_by,
           'previous', entry.previous,
           'hash', entry.hash
         ) ORDER BY entry.seq), '[]')
    FROM (
      SELECT e.*
        FROM ${names.runs} r
        JOIN ${names.workflows} w USING (run)
        JOIN ${names.events} e ON e.workflow_id = w.id
       WHERE r.run = wanted AND ${known(names, 'statement_timestamp()')}
         AND w.workflow_type = of_workflow
       ORDER BY e.seq DESC
       LIMIT at_most
    ) entry
$$;
COMMENT ON FUNCTION ${names.trail} IS
  'The newest entries of the trail of a workflow of a known run, oldest first.';
`;
