/** The functions of one workflow of a run: what run-state.ts does, in SQL. */
import { NOW, type PostgresNames } from './names.ts';

/** How many settled tokens and unsettled steps the contract asks a store to remember. */
const REMEMBERED = 16;

const NO_CLAIM = `(claim_token, claim_tool, claim_digest, claim_uncertain, idempotency_key,
        lease_until, claimed_at, claim_entry) = (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)`;

/** Saves what the next entry of the trail follows on, from `flow` into the row. */
const TRAIL_OF_FLOW =
  '(trail_seq, attempts, trail_hash) = (flow.trail_seq, flow.attempts, flow.trail_hash)';

/** Each function takes one JSON document, so that newer functions still serve older processes. */
export function createStepFunctions(names: PostgresNames): string {
  return [judge, claim, commit, renew, release].map((create) => create(names)).join('');
}

/** The unsettled steps without the one that has the key. */
function withoutKey(unsettled: string, key: string): string {
  return `jsonb_path_query_array(
             ${unsettled}, '$[*] ? (@.key != $settled)', jsonb_build_object('settled', ${key}))`;
}

/** A settled step needs its key no more. One that did not begin leaves it to the next try. */
const LEFT_UNSETTLED = `CASE WHEN asked.settles IS FALSE THEN unsettled
             ELSE ${withoutKey('unsettled', 'idempotency_key')} END`;

/** The released tokens and one more. */
function spent(token: string): string {
  return `(${token} || array_remove(released, ${token}))[1:${REMEMBERED}]`;
}

const judge = ({ judge, workflows, events }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${judge}(
  flow ${workflows}, moment timestamptz, token text, states text[], initial_state text
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  -- Only the trail has the tokens of a row that an older version wrote last.
  spent boolean := token = ANY (flow.released) OR CASE
    WHEN flow.committed IS NOT NULL THEN token = ANY (flow.committed)
    ELSE EXISTS (
      SELECT FROM ${events}
       WHERE workflow_id = flow.id AND seq > flow.version - ${REMEMBERED} AND claim_token = token
    )
  END;
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
  'The answer to a claim. A workflow that was never claimed is a row of NULLs.';
`;

const claim = ({
  claim,
  judge,
  toJson,
  makeRun,
  lockRun,
  touchRun,
  expireRun,
  addEntry,
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
      make_run boolean, new_key text, lease_ms double precision, ttl_ms double precision,
      entry json, chain_trail boolean
    );
  lease := asked.lease_ms * interval '1 millisecond';

  -- First a look without a lock, so that a refusal waits neither for a step's transaction nor for
  -- the disk.
  SELECT w.* INTO flow
    FROM ${names.runs} r
    LEFT JOIN ${names.workflows} w ON w.run = r.run AND w.workflow_type = asked.workflow
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

  -- Then with a lock on the run, which is made if the caller asks for that.
  IF NOT ${lockRun}(asked.run) THEN
    IF NOT asked.make_run THEN
      RETURN json_build_object('status', 'unknown');
    END IF;
    PERFORM ${makeRun}(request, replace_living => false);
  END IF;
  SELECT * INTO flow
    FROM ${names.workflows} WHERE run = asked.run AND workflow_type = asked.workflow;
  moment := clock_timestamp();
  verdict := ${judge}(flow, moment, asked.token, asked.states, asked.state);

  IF verdict = 'claimed' AND flow.claim_token = asked.token THEN
    UPDATE ${names.workflows} SET lease_until = moment + lease
     WHERE id = flow.id RETURNING * INTO flow;
  ELSIF verdict = 'claimed' THEN
    IF flow.id IS NULL THEN
      INSERT INTO ${names.workflows} (run, workflow_type, state, context, version, updated_at,
                                      trail_seq, trail_hash, committed)
      VALUES (asked.run, asked.workflow, asked.state, asked.context::json, asked.version, moment,
              0, CASE WHEN asked.chain_trail THEN '' END, '{}')
      RETURNING * INTO flow;
    ELSIF flow.claim_token IS NOT NULL THEN
      -- The claim that is taken over has an unknown outcome: the next try of its step gets its key.
      flow.unsettled := ${withoutKey('flow.unsettled', 'flow.idempotency_key')}
        || jsonb_build_object(
          'tool', flow.claim_tool, 'digest', flow.claim_digest, 'key', flow.idempotency_key);
      IF flow.claim_entry IS NOT NULL THEN
        flow := ${addEntry}(flow, (flow.claim_entry::jsonb || jsonb_build_object(
          'from_state', flow.state, 'outcome', 'unknown', 'kind', 'taken_over'
        ))::json, NULL, moment);
      END IF;
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
           claimed_at      = moment,
           claim_entry     = asked.entry,
           ${TRAIL_OF_FLOW},
           unsettled       = jsonb_path_query_array(
             flow.unsettled, '$[last - ${REMEMBERED - 1} to last]')
     WHERE id = flow.id RETURNING * INTO flow;
  END IF;

  PERFORM ${expireRun}(asked.run, CASE WHEN flow.ended THEN NULL ELSE asked.ttl_ms END);
  RETURN json_build_object('status', verdict, 'flow', ${toJson}(flow, moment), 'now', ${NOW});
END
$$;
COMMENT ON FUNCTION ${claim} IS
  'Takes the lease for a step, or says why not: unknown, state, busy, held.';
`;

const commit = ({ commit, addEntry, lockRun, expireRun, workflows, events }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${commit}(request json) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  asked    record;
  flow     ${workflows};
  settler  text;
  moment   timestamptz;
  answer   json;
BEGIN
  SELECT * INTO asked
    FROM json_to_record(request) AS r(
      run text, workflow text, token text, state text, context text, ttl_ms double precision,
      settles boolean, settles_all boolean, settled_as text, ended boolean
    );
  settler := coalesce(asked.settled_as, asked.token);
  IF NOT ${lockRun}(asked.run) THEN
    RETURN json_build_object('status', 'unknown');
  END IF;

  SELECT * INTO flow FROM ${workflows}
   WHERE run = asked.run AND workflow_type = asked.workflow AND claim_token = asked.token;
  IF FOUND THEN
    moment := clock_timestamp();
    IF flow.committed IS NULL THEN
      flow.committed := ARRAY(
        SELECT claim_token FROM ${events}
         WHERE workflow_id = flow.id AND claim_token IS NOT NULL
         ORDER BY seq DESC LIMIT ${REMEMBERED - 1}
      );
    END IF;
    flow := ${addEntry}(flow, request, settler, moment);
    UPDATE ${workflows}
       SET (state, context, version, updated_at, ended)
           = (asked.state, asked.context::json, version + 1, moment, asked.ended),
           ${TRAIL_OF_FLOW},
           unsettled = CASE WHEN asked.settles_all THEN '[]' ELSE ${LEFT_UNSETTLED} END,
           released = CASE WHEN settler = asked.token THEN released
             ELSE ${spent('asked.token')} END,
           committed = (settler || flow.committed)[1:${REMEMBERED}],
           ${NO_CLAIM}
     WHERE id = flow.id;
    answer := json_build_object('status', 'committed', 'version', flow.version + 1);
  ELSE
    SELECT json_build_object('status', 'committed', 'version', made.version, 'repeated', true)
      INTO answer
      FROM (
        -- The row has the newest tokens, even where the operator has removed old events.
        SELECT coalesce(w.version - array_position(w.committed, settler) + 1, (
                 SELECT coalesce(e.version, e.seq) FROM ${events} e
                  WHERE e.workflow_id = w.id AND e.claim_token = settler
               )) AS version
          FROM ${workflows} w
         WHERE w.run = asked.run AND w.workflow_type = asked.workflow
      ) made
     WHERE made.version IS NOT NULL;
  END IF;

  PERFORM ${expireRun}(asked.run, asked.ttl_ms);
  RETURN coalesce(answer, json_build_object('status', 'lost'));
END
$$;
COMMENT ON FUNCTION ${commit} IS
  'Moves the workflow, adds to its trail and lets the claim go; or says which version this token '
  'has already made, or that the claim is lost.';
`;

const renew = ({ renew, lockRun, runs, workflows }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${renew}(request json, lease_ms double precision)
RETURNS boolean LANGUAGE plpgsql AS $$
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
COMMENT ON FUNCTION ${renew} IS
  'Makes the lease of a claim end later, and with it the run if need be.';
`;

const release = ({ release, addEntry, lockRun, workflows }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${release}(request json) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  asked  record;
  flow   ${workflows};
BEGIN
  SELECT * INTO asked
    FROM json_to_record(request) AS r(
      run text, workflow text, token text, settles boolean, from_state text
    );
  IF NOT ${lockRun}(asked.run) THEN
    RETURN;
  END IF;
  SELECT * INTO flow FROM ${workflows} WHERE run = asked.run AND workflow_type = asked.workflow;
  IF flow.claim_token = asked.token THEN
    IF asked.from_state IS NOT NULL THEN
      flow := ${addEntry}(flow, request, NULL, clock_timestamp());
    END IF;
    UPDATE ${workflows}
       SET unsettled = ${LEFT_UNSETTLED},
           released = ${spent('asked.token')},
           ${TRAIL_OF_FLOW},
           ${NO_CLAIM}
     WHERE id = flow.id;
  ELSE
    UPDATE ${workflows} SET released = ${spent('asked.token')} WHERE id = flow.id;
  END IF;
END
$$;
COMMENT ON FUNCTION ${release} IS
  'Lets the claim go without a move, with an entry in the trail where one is given. The token is '
  'spent, also one that has no claim yet.';
`;
