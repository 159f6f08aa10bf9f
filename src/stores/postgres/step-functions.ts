/** The functions of one workflow of a run: what run-state.ts does, in SQL. */
import {
  anchor,
  FIXED_PATH,
  known,
  milliseconds,
  NOW,
  needed,
  type PostgresNames,
  sessionEnded,
} from './names.ts';

/** How many settled tokens of each kind a workflow's row remembers. */
const TOKENS_KEPT = 16;
/** How many idempotency keys of unsettled steps there may be. */
const KEYS_KEPT = 16;

const NO_CLAIM = `(claim_token, claim_tool, claim_digest, claim_uncertain, claim_use, claim_kind,
        claim_entry, claimed_at, lease_until, idempotency_key)
       = (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)`;

/** Saves what the next entry of the trail follows on, from `flow` into the row. */
const TRAIL_OF_FLOW =
  '(trail_seq, attempts, trail_hash) = (flow.trail_seq, flow.attempts, flow.trail_hash)';

/** Each function takes one JSON document, so that newer functions still serve older processes. */
export function createStepFunctions(names: PostgresNames): string {
  return [begin, judge, claim, commit, record, freeze, renew, release]
    .map((create) => create(names))
    .join('');
}

/** The unsettled steps without the one that has the key. */
function withoutKey(unsettled: string, key: string): string {
  return `jsonb_path_query_array(
             ${unsettled}, '$[*] ? (@.key != $settled)', jsonb_build_object('settled', ${key}))`;
}

/**
 * The unsettled steps of `flow` once another claim has taken its claim over. What a step would use
 * is text there, since `jsonb` does not keep JSON as it came.
 */
const TAKEN_OVER = `${withoutKey('flow.unsettled', 'flow.idempotency_key')}
        || jsonb_strip_nulls(jsonb_build_object(
          'tool', flow.claim_tool, 'digest', flow.claim_digest, 'key', flow.idempotency_key,
          'since', ${milliseconds('flow.claimed_at')}, 'use', flow.claim_use::text))`;

/** A settled step needs its key no more. One that did not begin leaves it to the next try. */
const LEFT_UNSETTLED = `CASE WHEN asked.settles IS FALSE THEN unsettled
             ELSE ${withoutKey('unsettled', 'idempotency_key')} END`;

/** The tokens in a column and one more. */
function spent(column: 'committed' | 'released', token: string): string {
  return `(${token} || array_remove(${column}, ${token}))[1:${TOKENS_KEPT}]`;
}

/** The version that a token has made in `flow`; NULL where it made none that is remembered. */
function madeBy(token: string): string {
  return `flow.version - array_position(flow.committed, ${token}) + 1`;
}

const begin = ({ begin, workflows }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${begin}(request json, moment timestamptz)
RETURNS ${workflows}
LANGUAGE plpgsql ${FIXED_PATH} AS $$
DECLARE
  flow  ${workflows};
BEGIN
  INSERT INTO ${workflows} (run, workflow_type, state, context, version, updated_at, name_digest,
                            trail_hash)
  SELECT run, workflow, initial_state, initial_context::json, initial_version, moment, name_digest,
         ${anchor('run_digest', 'name_digest')}
    FROM json_to_record(request) AS r(
      run text, workflow text, initial_state text, initial_context text, initial_version bigint,
      run_digest text, name_digest text
    )
  RETURNING * INTO flow;
  RETURN flow;
END
$$;
COMMENT ON FUNCTION ${begin} IS 'Makes a workflow of a locked run, where it begins.';
`;

const judge = ({ judge, workflows }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${judge}(
  flow ${workflows}, moment timestamptz, token text, asked_tool text, asked_digest text,
  asked_uncertain text, states text[], initial_state text
) RETURNS text
LANGUAGE plpgsql ${FIXED_PATH} AS $$
DECLARE
  unsettled  jsonb := flow.unsettled;
BEGIN
  IF token = ANY (flow.committed) OR token = ANY (flow.released) THEN
    RETURN 'state';
  END IF;
  IF flow.frozen IS NOT NULL AND flow.claim_token IS DISTINCT FROM token THEN
    RETURN 'frozen';
  END IF;
  IF flow.claim_token <> token THEN
    IF flow.lease_until > moment THEN
      RETURN 'busy';
    ELSIF flow.claim_uncertain = 'hold' THEN
      RETURN 'held';
    END IF;
  END IF;
  IF coalesce(flow.state, initial_state) <> ALL (states) THEN
    RETURN 'state';
  END IF;
  IF asked_uncertain = 'retry' AND flow.claim_token IS DISTINCT FROM token
     AND jsonb_array_length(unsettled) >= ${KEYS_KEPT - 1} THEN
    IF flow.claim_token IS NOT NULL THEN
      unsettled := ${TAKEN_OVER};
    END IF;
    IF jsonb_array_length(unsettled) >= ${KEYS_KEPT} AND NOT EXISTS (
      SELECT FROM jsonb_array_elements(unsettled) step
       WHERE step->>'tool' = asked_tool AND step->>'digest' = asked_digest
    ) THEN
      RETURN 'unsettled';
    END IF;
  END IF;
  RETURN 'claimed';
END
$$;
COMMENT ON FUNCTION ${judge} IS
  'The answer to a claim. A workflow that was never claimed is a row of NULLs.';
`;

const claim = (names: PostgresNames) => {
  const judged = `${names.judge}(flow, moment, asked.token, asked.tool, asked.digest,
      asked.uncertain, asked.states, asked.initial_state)`;
  return `
CREATE OR REPLACE FUNCTION ${names.claim}(request json) RETURNS json
LANGUAGE plpgsql ${FIXED_PATH} AS $$
DECLARE
  asked    record;
  seen     record;
  flow     ${names.workflows};
  moment   timestamptz := statement_timestamp();
  verdict  text;
  is_own   boolean;
  is_over  boolean;
  lease    interval;
  leased   timestamptz;
  old_key  text;
BEGIN
  SELECT * INTO asked
    FROM json_to_record(request) AS r(
      run text, workflow text, token text, tool text, digest text, uncertain text, states text[],
      initial_state text, make_run boolean, new_key text, lease_ms double precision,
      ttl_ms double precision, key_ms double precision, entry json, use text
    );
  lease := asked.lease_ms * interval '1 millisecond';

  -- First a look without a lock, so that a refusal waits neither for a step's transaction nor for
  -- the disk.
  SELECT w AS flow, ${sessionEnded('moment')} AS is_over INTO seen
    FROM ${names.runs} r
    LEFT JOIN ${names.workflows} w ON w.run = r.run AND w.workflow_type = asked.workflow
   WHERE r.run = asked.run AND ${known(names, 'moment')};
  IF FOUND THEN
    flow := seen.flow;
    is_own := flow.claim_token IS NOT DISTINCT FROM asked.token;
    IF seen.is_over AND NOT asked.make_run AND NOT is_own THEN
      RETURN json_build_object('status', 'unknown');
    END IF;
    verdict := ${judged};
    IF verdict <> 'claimed' AND NOT (seen.is_over AND asked.make_run) THEN
      IF flow.ended IS NOT TRUE THEN
        PERFORM ${names.touchRun}(asked.run, asked.ttl_ms);
      END IF;
      RETURN json_build_object(
        'status', verdict, 'flow', ${names.toJson}(flow, moment), 'now', ${NOW});
    END IF;
  END IF;

  -- Then with a lock on the run, which is made if the caller asks for that.
  IF NOT ${names.lockRun}(asked.run) THEN
    IF NOT asked.make_run THEN
      RETURN json_build_object('status', 'unknown');
    END IF;
    PERFORM ${names.makeRun}(request);
  END IF;
  moment := clock_timestamp();
  SELECT w AS flow, ${sessionEnded('moment')} AND NOT asked.make_run AS is_over INTO seen
    FROM ${names.runs} r
    LEFT JOIN ${names.workflows} w ON w.run = r.run AND w.workflow_type = asked.workflow
   WHERE r.run = asked.run;
  flow := seen.flow;
  is_over := seen.is_over;
  is_own := flow.claim_token IS NOT DISTINCT FROM asked.token;
  IF is_over AND NOT is_own THEN
    RETURN json_build_object('status', 'unknown');
  END IF;
  verdict := ${judged};

  IF verdict = 'claimed' AND is_own THEN
    leased := flow.lease_until;
    UPDATE ${names.workflows} SET lease_until = moment + lease
     WHERE id = flow.id RETURNING * INTO flow;
  ELSIF verdict = 'claimed' THEN
    IF flow.id IS NULL THEN
      flow := ${names.begin}(request, moment);
    ELSIF flow.claim_token IS NOT NULL THEN
      -- The claim that is taken over has an unknown outcome: the next try of its step gets its key.
      flow.unsettled := ${TAKEN_OVER};
      IF flow.claim_entry IS NOT NULL THEN
        flow := ${names.addEntry}(flow, (flow.claim_entry::jsonb || jsonb_build_object(
          'from_state', flow.state, 'outcome', 'unknown', 'kind', 'taken_over'
        ))::json, moment);
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
           claim_use       = asked.use::json,
           claim_kind      = NULL,
           claim_entry     = asked.entry,
           claimed_at      = moment,
           lease_until     = moment + lease,
           idempotency_key = coalesce(old_key, asked.new_key),
           ${TRAIL_OF_FLOW},
           unsettled       = flow.unsettled
     WHERE id = flow.id RETURNING * INTO flow;
  END IF;

  IF NOT is_over THEN
    PERFORM ${names.expireRun}(asked.run, CASE
      WHEN flow.ended THEN NULL
      WHEN verdict = 'claimed' AND flow.claim_uncertain = 'retry'
        THEN greatest(asked.ttl_ms, asked.key_ms)
      ELSE asked.ttl_ms
    END, revives => true, leased => leased);
  END IF;
  RETURN json_build_object(
    'status', verdict, 'flow', ${names.toJson}(flow, moment), 'now', ${NOW},
    'unsettled', CASE WHEN verdict = 'claimed' THEN nullif(flow.unsettled, '[]') END);
END
$$;
COMMENT ON FUNCTION ${names.claim} IS
  'Takes the lease for a step, or says why not: unknown, state, frozen, busy, held, unsettled.';
`;
};

const commit = (names: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${names.commit}(request json) RETURNS json
LANGUAGE plpgsql ${FIXED_PATH} AS $$
DECLARE
  asked    record;
  flow     ${names.workflows};
  settler  text;
  made     bigint;
  moment   timestamptz;
  answer   json;
BEGIN
  SELECT * INTO asked
    FROM json_to_record(request) AS r(
      run text, workflow text, token text, state text, context text, ttl_ms double precision,
      settles boolean, settles_all boolean, settled_as text, ended boolean, from_version bigint
    );
  settler := coalesce(asked.settled_as, asked.token);
  IF NOT ${names.lockRun}(asked.run) THEN
    RETURN json_build_object('status', 'unknown');
  END IF;
  SELECT * INTO flow
    FROM ${names.workflows} WHERE run = asked.run AND workflow_type = asked.workflow;
  moment := clock_timestamp();
  made := ${madeBy('settler')};

  IF made IS NOT NULL THEN
    answer := json_build_object('status', 'committed', 'version', made, 'repeated', true);
  ELSIF flow.claim_token IS DISTINCT FROM asked.token THEN
    answer := json_build_object('status', 'lost');
  ELSIF flow.version <> asked.from_version THEN
    RETURN json_build_object(
      'status', 'moved', 'flow', ${names.toJson}(flow, moment), 'now', ${NOW});
  ELSE
    flow := ${names.addEntry}(flow, request, moment);
    UPDATE ${names.workflows}
       SET (state, context, version, updated_at, ended)
           = (asked.state, asked.context::json, version + 1, moment, asked.ended),
           ${TRAIL_OF_FLOW},
           unsettled = CASE WHEN asked.settles_all THEN '[]' ELSE ${LEFT_UNSETTLED} END,
           released = CASE WHEN settler = asked.token THEN released
             ELSE ${spent('released', 'asked.token')} END,
           committed = ${spent('committed', 'settler')},
           ${NO_CLAIM}
     WHERE id = flow.id;
    answer := json_build_object('status', 'committed', 'version', flow.version + 1);
    IF ${names.keepEvidence}(asked.run, moment) THEN
      RETURN answer;
    END IF;
  END IF;
  PERFORM ${names.expireRun}(asked.run, asked.ttl_ms, revives => false);
  RETURN answer;
END
$$;
COMMENT ON FUNCTION ${names.commit} IS
  'Moves the workflow, adds to its trail and lets the claim go; or says which version this token '
  'has already made, that the claim is lost, or that the workflow has moved.';
`;

const record = (names: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${names.record}(request json) RETURNS json
LANGUAGE plpgsql ${FIXED_PATH} AS $$
DECLARE
  asked    record;
  flow     ${names.workflows};
  made     bigint;
  moment   timestamptz;
  answer   json;
BEGIN
  SELECT * INTO asked
    FROM json_to_record(request) AS r(
      run text, workflow text, token text, make_run boolean, initial_version bigint,
      from_version bigint, state text, context text, ttl_ms double precision, ended boolean
    );
  IF NOT ${names.lockRun}(asked.run) THEN
    IF NOT asked.make_run THEN
      RETURN json_build_object('status', 'unknown');
    END IF;
    PERFORM ${names.makeRun}(request);
  END IF;
  moment := clock_timestamp();
  IF NOT asked.make_run AND (
    SELECT ${sessionEnded('moment')} FROM ${names.runs} r WHERE r.run = asked.run
  ) THEN
    RETURN json_build_object('status', 'unknown');
  END IF;
  SELECT * INTO flow
    FROM ${names.workflows} WHERE run = asked.run AND workflow_type = asked.workflow;
  made := ${madeBy('asked.token')};

  IF made IS NOT NULL THEN
    answer := json_build_object('status', 'recorded', 'version', made, 'repeated', true);
  ELSIF coalesce(flow.version, asked.initial_version) <> asked.from_version THEN
    answer := json_build_object(
      'status', 'moved', 'flow', ${names.toJson}(flow, moment), 'now', ${NOW});
  ELSE
    IF flow.id IS NULL THEN
      flow := ${names.begin}(request, moment);
    END IF;
    flow := ${names.addEntry}(flow, request, moment);
    UPDATE ${names.workflows}
       SET (state, context, version, updated_at, ended)
           = (asked.state, asked.context::json, version + 1, moment,
              coalesce(asked.ended, ended)),
           ${TRAIL_OF_FLOW},
           committed = ${spent('committed', 'asked.token')}
     WHERE id = flow.id;
    answer := json_build_object('status', 'recorded', 'version', flow.version + 1);
  END IF;
  PERFORM ${names.expireRun}(
    asked.run, CASE WHEN flow.ended THEN NULL ELSE asked.ttl_ms END, revives => true);
  RETURN answer;
END
$$;
COMMENT ON FUNCTION ${names.record} IS
  'Moves the workflow beside the claim of any step, and adds to its trail; or says that it has '
  'moved, or which version this token has already made.';
`;

const freeze = (names: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${names.freeze}(request json) RETURNS json
LANGUAGE plpgsql ${FIXED_PATH} AS $$
DECLARE
  asked        record;
  flow         ${names.workflows};
  moment       timestamptz;
  is_over      boolean;
  is_repeated  boolean;
  is_change    boolean;
BEGIN
  SELECT * INTO asked
    FROM json_to_record(request) AS r(
      run text, workflow text, token text, make_run boolean, frozen text, ttl_ms double precision
    );
  IF NOT ${names.lockRun}(asked.run) THEN
    IF NOT asked.make_run THEN
      RETURN json_build_object('status', 'unknown');
    END IF;
    PERFORM ${names.makeRun}(request);
  END IF;
  moment := clock_timestamp();
  is_over := NOT asked.make_run AND (
    SELECT ${sessionEnded('moment')} FROM ${names.runs} r WHERE r.run = asked.run
  );
  SELECT * INTO flow
    FROM ${names.workflows} WHERE run = asked.run AND workflow_type = asked.workflow;
  is_repeated := coalesce(asked.token = ANY (flow.committed || flow.released), false);
  -- A repeat is known also after a thaw that was the last to need a run whose session is over.
  IF is_over AND NOT is_repeated AND NOT ${needed(names, 'asked.run', 'moment')} THEN
    RETURN json_build_object('status', 'unknown');
  END IF;
  is_change := NOT is_repeated AND (flow.frozen IS NULL) <> (asked.frozen IS NULL);

  IF is_change THEN
    IF flow.id IS NULL THEN
      flow := ${names.begin}(request, moment);
    END IF;
    flow := ${names.addEntry}(flow, request, moment);
    UPDATE ${names.workflows}
       SET frozen = asked.frozen::json,
           ${TRAIL_OF_FLOW},
           released = ${spent('released', 'asked.token')}
     WHERE id = flow.id RETURNING * INTO flow;
  END IF;
  IF NOT is_over THEN
    PERFORM ${names.expireRun}(
      asked.run, CASE WHEN flow.ended THEN NULL ELSE asked.ttl_ms END, revives => true);
  ELSIF is_change AND flow.frozen IS NULL THEN
    PERFORM ${names.keepEvidence}(asked.run, moment);
  END IF;
  RETURN json_build_object(
    'status', CASE WHEN is_change OR is_repeated THEN 'changed' ELSE 'unchanged' END,
    'flow', ${names.toJson}(flow, moment), 'now', ${NOW});
END
$$;
COMMENT ON FUNCTION ${names.freeze} IS
  'Stops a workflow of a run beside the claim of any step, or lets it go on, and adds to its '
  'trail: changed, unchanged or unknown.';
`;

const renew = ({ renew, lockRun, expireRun, workflows }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${renew}(request json) RETURNS boolean
LANGUAGE plpgsql ${FIXED_PATH} AS $$
DECLARE
  asked  record;
BEGIN
  SELECT * INTO asked
    FROM json_to_record(request) AS r(
      run text, workflow text, token text, lease_ms double precision, hold text
    );
  IF NOT ${lockRun}(asked.run) THEN
    RETURN false;
  END IF;
  UPDATE ${workflows}
     SET lease_until = clock_timestamp() + asked.lease_ms * interval '1 millisecond',
         claim_uncertain = CASE WHEN asked.hold IS NULL THEN claim_uncertain ELSE 'hold' END,
         claim_kind = coalesce(asked.hold, claim_kind)
   WHERE run = asked.run AND workflow_type = asked.workflow AND claim_token = asked.token;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM ${expireRun}(asked.run, NULL::double precision, revives => false);
  RETURN true;
END
$$;
COMMENT ON FUNCTION ${renew} IS
  'Makes the lease of a claim end at another time, and the run later if need be. May make the '
  'claim that of a hold step.';
`;

const release = ({ release, addEntry, lockRun, keepEvidence, workflows }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${release}(request json) RETURNS void
LANGUAGE plpgsql ${FIXED_PATH} AS $$
DECLARE
  asked   record;
  flow    ${workflows};
  moment  timestamptz;
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
    moment := clock_timestamp();
    IF asked.from_state IS NOT NULL THEN
      flow := ${addEntry}(flow, request, moment);
    END IF;
    UPDATE ${workflows}
       SET unsettled = ${LEFT_UNSETTLED},
           released = ${spent('released', 'asked.token')},
           ${TRAIL_OF_FLOW},
           ${NO_CLAIM}
     WHERE id = flow.id;
    PERFORM ${keepEvidence}(asked.run, moment);
  ELSE
    UPDATE ${workflows} SET released = ${spent('released', 'asked.token')} WHERE id = flow.id;
  END IF;
END
$$;
COMMENT ON FUNCTION ${release} IS
  'Lets the claim go without a move, with an entry in the trail where one is given. The token is '
  'spent, also one that has no claim yet.';
`;
