import type { PostgresNames } from './names.ts';
import { NOW } from './run-functions.ts';

/** How many settled tokens and unsettled steps the contract asks a store to remember. */
const REMEMBERED = 16;

const NO_CLAIM = `(claim_token, claim_tool, claim_digest, claim_uncertain, idempotency_key, lease_until)
       = (NULL, NULL, NULL, NULL, NULL, NULL)`;

/**
 * What happens to one workflow of a run. Each function takes one JSON document, so that a newer
 * version of a function still serves older processes during a deployment.
 */
export function createStepFunctions(names: PostgresNames): string {
  return [judge, claim, commit, renew, release, history].map((create) => create(names)).join('');
}

/** The unsettled steps but for that of one key. */
function withoutKey(unsettled: string, key: string): string {
  return `jsonb_path_query_array(${unsettled}, '$[*] ? (@.key != $settled)', jsonb_build_object('settled', ${key}))`;
}

/**
 * A step that is settled needs its key no more; one that was not begun leaves it to the next try.
 */
const LEFT_UNSETTLED = `CASE WHEN asked.settles IS FALSE THEN unsettled ELSE ${withoutKey('unsettled', 'idempotency_key')} END`;

/** The released tokens with one more. */
function spent(token: string): string {
  return `(${token} || array_remove(released, ${token}))[1:${REMEMBERED}]`;
}

const judge = ({ judge, workflows, events }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${judge}(flow ${workflows}, moment timestamptz, token text, states text[], initial_state text)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  spent boolean := token = ANY (flow.released) OR EXISTS (
    SELECT FROM ${events}
     WHERE workflow_id = flow.id AND version > flow.version - ${REMEMBERED} AND claim_token = token
  );
BEGIN
  RETURN CASE
    WHEN spent                                                THEN 'state'
    WHEN flow.claim_token = token                             THEN 'claimed'
    WHEN flow.lease_until > moment                            THEN 'busy'
    WHEN flow.claim_uncertain = 'hold'                        THEN 'held'
    WHEN coalesce(flow.state, initial_state) <> ALL (states)  THEN 'state'
    ELSE 'claimed'
  END;
END
$$;
COMMENT ON FUNCTION ${judge} IS
  'What a claim is answered. A workflow that was never claimed is a row of NULLs.';
`;

const claim = ({
  claim,
  judge,
  toJson,
  makeRun,
  lockRun,
  touchRun,
  expireRun,
  ...names
}: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${claim}(request json) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  asked    record;
  flow     ${names.workflows};
  moment   timestamptz := statement_timestamp();
  verdict  text;
  lease    interval;
  old_key  text;
BEGIN
  SELECT * INTO asked
    FROM json_to_record(request) AS r(
      run text, workflow text, token text, tool text, digest text, uncertain text, states text[],
      state text, context text, version bigint,
      make_run boolean, new_key text, lease_ms double precision, ttl_ms double precision
    );
  lease := asked.lease_ms * interval '1 millisecond';

  -- First a look without a lock: a refusal waits neither for the transaction of a step nor for the disk.
  SELECT w.* INTO flow
    FROM ${names.runs} r LEFT JOIN ${names.workflows} w ON w.run = r.run AND w.workflow_type = asked.workflow
   WHERE r.run = asked.run AND r.expires_at > moment;
  IF FOUND THEN
    verdict := ${judge}(flow, moment, asked.token, asked.states, asked.state);
    IF verdict <> 'claimed' THEN
      IF flow.ended IS NOT TRUE THEN
        PERFORM ${touchRun}(asked.run, asked.ttl_ms);
      END IF;
      RETURN json_build_object('status', verdict, 'flow', ${toJson}(flow, moment), 'now', ${NOW});
    END IF;
  END IF;

  -- Then with the run locked, and made where that is asked for.
  IF NOT ${lockRun}(asked.run) THEN
    IF NOT asked.make_run THEN
      RETURN json_build_object('status', 'unknown');
    END IF;
    PERFORM ${makeRun}(request, replace_living => false);
  END IF;
  SELECT * INTO flow FROM ${names.workflows} WHERE run = asked.run AND workflow_type = asked.workflow;
  moment := clock_timestamp();
  verdict := ${judge}(flow, moment, asked.token, asked.states, asked.state);

  IF verdict = 'claimed' AND flow.claim_token = asked.token THEN
    UPDATE ${names.workflows} SET lease_until = moment + lease WHERE id = flow.id RETURNING * INTO flow;
  ELSIF verdict = 'claimed' THEN
    IF flow.id IS NULL THEN
      INSERT INTO ${names.workflows} (run, workflow_type, state, context, version, updated_at)
      VALUES (asked.run, asked.workflow, asked.state, asked.context::json, asked.version, moment)
      RETURNING * INTO flow;
    ELSIF flow.claim_token IS NOT NULL THEN
      -- That claim gives way and its outcome is unknown: its key waits for the same step to come again.
      flow.unsettled := ${withoutKey('flow.unsettled', 'flow.idempotency_key')} || jsonb_build_object(
        'tool', flow.claim_tool, 'digest', flow.claim_digest, 'key', flow.idempotency_key);
    END IF;
    SELECT step->>'key' INTO old_key
      FROM jsonb_array_elements(flow.unsettled) step
     WHERE step->>'tool' = asked.tool AND step->>'digest' = asked.digest;
    UPDATE ${names.workflows}
       SET claim_token     = asked.token,
           claim_tool      = asked.tool,
           claim_digest    = asked.digest,
           claim_uncertain = asked.uncertain,
           idempotency_key = coalesce(old_key, asked.new_key),
           lease_until     = moment + lease,
           unsettled       = jsonb_path_query_array(flow.unsettled, '$[last - ${REMEMBERED - 1} to last]')
     WHERE id = flow.id RETURNING * INTO flow;
  END IF;

  PERFORM ${expireRun}(asked.run, CASE WHEN flow.ended THEN NULL ELSE asked.ttl_ms END);
  RETURN json_build_object('status', verdict, 'flow', ${toJson}(flow, moment), 'now', ${NOW});
END
$$;
COMMENT ON FUNCTION ${claim} IS 'Takes the lease for a step, or says why not: unknown, state, busy, held.';
`;

const commit = ({ commit, lockRun, expireRun, workflows, events }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${commit}(request json) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  asked    record;
  flow     ${workflows};
  settler  text;
  answer   json;
BEGIN
  SELECT * INTO asked
    FROM json_to_record(request) AS r(
      run text, workflow text, token text, state text, context text,
      from_state text, to_state text, event text, tool text, actor text, payload text, ttl_ms double precision,
      settles boolean, settles_all boolean, settled_as text, ended boolean
    );
  settler := coalesce(asked.settled_as, asked.token);
  IF NOT ${lockRun}(asked.run) THEN
    RETURN json_build_object('status', 'unknown');
  END IF;

  UPDATE ${workflows}
     SET (state, context, version, updated_at)
       = (asked.state, asked.context::json, version + 1, clock_timestamp()),
         ended = asked.ended,
         unsettled = CASE WHEN asked.settles_all THEN '[]' ELSE ${LEFT_UNSETTLED} END,
         released = CASE WHEN settler = asked.token THEN released ELSE ${spent('asked.token')} END,
         ${NO_CLAIM}
   WHERE run = asked.run AND workflow_type = asked.workflow AND claim_token = asked.token
  RETURNING * INTO flow;
  IF FOUND THEN
    INSERT INTO ${events} (workflow_id, version, run, workflow_type, from_state, to_state,
                           event, payload, actor, tool, claim_token, occurred_at)
    VALUES (flow.id, flow.version, asked.run, asked.workflow, asked.from_state, asked.to_state,
            asked.event, asked.payload::json, asked.actor, asked.tool, settler, flow.updated_at);
    answer := json_build_object('status', 'committed', 'version', flow.version);
  ELSE
    SELECT json_build_object('status', 'committed', 'version', e.version, 'repeated', true) INTO answer
      FROM ${workflows} w JOIN ${events} e ON e.workflow_id = w.id
     WHERE w.run = asked.run AND w.workflow_type = asked.workflow AND e.claim_token = settler;
  END IF;

  PERFORM ${expireRun}(asked.run, asked.ttl_ms);
  RETURN coalesce(answer, json_build_object('status', 'lost'));
END
$$;
COMMENT ON FUNCTION ${commit} IS
  'Moves the workflow, appends the event and lets the claim go; or says which version this token has '
  'already made, or that the claim is lost.';
`;

const renew = ({ renew, lockRun, runs, workflows }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${renew}(request json, lease_ms double precision) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  asked  record;
  lease  timestamptz;
BEGIN
  SELECT * INTO asked FROM json_to_record(request) AS r(run text, workflow text, token text);
  IF NOT ${lockRun}(asked.run) THEN
    RETURN false;
  END IF;
  UPDATE ${workflows} SET lease_until = clock_timestamp() + lease_ms * interval '1 millisecond'
   WHERE run = asked.run AND workflow_type = asked.workflow AND claim_token = asked.token
  RETURNING lease_until INTO lease;
  UPDATE ${runs} SET expires_at = lease WHERE run = asked.run AND expires_at < lease;
  RETURN lease IS NOT NULL;
END
$$;
COMMENT ON FUNCTION ${renew} IS 'Makes the lease of a claim end later, and with it the run if need be.';
`;

const release = ({ release, lockRun, workflows }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${release}(request json) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  asked record;
BEGIN
  SELECT * INTO asked FROM json_to_record(request) AS r(run text, workflow text, token text, settles boolean);
  IF ${lockRun}(asked.run) THEN
    UPDATE ${workflows} SET unsettled = ${LEFT_UNSETTLED}, ${NO_CLAIM}
     WHERE run = asked.run AND workflow_type = asked.workflow AND claim_token = asked.token;
    UPDATE ${workflows} SET released = ${spent('asked.token')}
     WHERE run = asked.run AND workflow_type = asked.workflow;
  END IF;
END
$$;
COMMENT ON FUNCTION ${release} IS
  'Lets the claim go without a move. The token is spent, also one that has no claim yet.';
`;

const history = ({ history, runs, workflows, events }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${history}(wanted text, of_workflow text, at_most bigint) RETURNS json LANGUAGE sql AS $$
  SELECT coalesce(json_agg(json_build_object(
           'version', entry.version,
           'from', entry.from_state,
           'to', entry.to_state,
           'event', entry.event,
           'tool', entry.tool,
           'actor', entry.actor,
           'payload', entry.payload::text,
           'at', floor(extract(epoch FROM entry.occurred_at) * 1000)
         ) ORDER BY entry.version), '[]')
    FROM (
      SELECT e.*
        FROM ${runs} r JOIN ${workflows} w USING (run) JOIN ${events} e ON e.workflow_id = w.id
       WHERE r.run = wanted AND r.expires_at > statement_timestamp() AND w.workflow_type = of_workflow
       ORDER BY e.version DESC
       LIMIT at_most
    ) entry
$$;
COMMENT ON FUNCTION ${history} IS 'The newest events of a workflow of a known run, oldest first.';
`;
