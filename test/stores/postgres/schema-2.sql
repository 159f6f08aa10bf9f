DO $$ BEGIN
  IF to_regnamespace('"schema_2"') IS NULL THEN
    CREATE SCHEMA "schema_2";
  END IF;
END $$;
CREATE TABLE "schema_2"."workflow_migrations" (
  version     integer PRIMARY KEY,
  applied_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE "schema_2"."workflow_migrations" IS 'What migrate() has done to these tables and functions.';


CREATE TABLE "schema_2"."workflow_runs" (
  run         text COLLATE "C" PRIMARY KEY,
  long_key    text,
  principal   text,
  minted      boolean,
  created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at  timestamptz NOT NULL
) WITH (fillfactor = 70);

COMMENT ON TABLE "schema_2"."workflow_runs" IS
  'One row for each run: a client''s session, or whatever else names a run. Whatever happens in a run first '
  'locks this row.';
COMMENT ON COLUMN "schema_2"."workflow_runs".run IS
  'The run key. Here and in every other text column a backslash is doubled, and NUL and half surrogate '
  'pairs are written \uXXXX. A key over 1000 bytes is its beginning and a SHA-256 digest.';
COMMENT ON COLUMN "schema_2"."workflow_runs".long_key IS 'The run key where run is only its beginning and a digest, else NULL.';
COMMENT ON COLUMN "schema_2"."workflow_runs".principal IS 'Who may use the run. NULL: unauthenticated callers.';
COMMENT ON COLUMN "schema_2"."workflow_runs".minted IS 'Whether the middleware made up the session id.';
COMMENT ON COLUMN "schema_2"."workflow_runs".expires_at IS
  'From then on the run is unknown, whether its row is still here or not.';
CREATE INDEX ON "schema_2"."workflow_runs" (expires_at);

CREATE TABLE "schema_2"."workflows" (
  id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  run              text COLLATE "C" NOT NULL REFERENCES "schema_2"."workflow_runs" ON DELETE CASCADE,
  workflow_type    text COLLATE "C" NOT NULL,
  state            text COLLATE "C" NOT NULL,
  context          json,
  version          bigint NOT NULL,
  created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at       timestamptz NOT NULL,
  claim_token      text,
  claim_tool       text,
  claim_digest     text,
  claim_uncertain  text CHECK (claim_uncertain IN ('hold', 'retry')),
  idempotency_key  text,
  lease_until      timestamptz,
  unsettled        jsonb NOT NULL DEFAULT '[]',
  released         text[] NOT NULL DEFAULT '{}',
  CONSTRAINT claim_is_whole_or_not_there CHECK (
    num_nulls(claim_token, claim_tool, claim_digest, claim_uncertain, idempotency_key, lease_until) IN (0, 6)
  )
) WITH (fillfactor = 70);

-- A name may be longer than an entry of an index, so they hold its hash and its beginning.
CREATE UNIQUE INDEX ON "schema_2"."workflows" (run, hashtextextended(workflow_type, 0));
CREATE INDEX ON "schema_2"."workflows" (left(state, 250), updated_at, id);

COMMENT ON TABLE "schema_2"."workflows" IS
  'Where each run is in each of its workflows. Stuck: WHERE left(state, 250) = ''payment'' AND updated_at < '
  'now() - interval ''1 hour''. Held: WHERE claim_uncertain = ''hold'' AND lease_until < now().';
COMMENT ON COLUMN "schema_2"."workflows".workflow_type IS 'The gate''s id.';
COMMENT ON COLUMN "schema_2"."workflows".context IS
  'What the workflow carries along. NULL: nothing, which is not the JSON value null.';
COMMENT ON COLUMN "schema_2"."workflows".version IS 'How many moves were committed.';
COMMENT ON COLUMN "schema_2"."workflows".claim_token IS
  'Whose step is under way, or ended with an unknown outcome. The five columns after it go with it. NULL: '
  'nobody''s.';
COMMENT ON COLUMN "schema_2"."workflows".claim_digest IS 'A digest of the call''s arguments.';
COMMENT ON COLUMN "schema_2"."workflows".claim_uncertain IS
  'What follows once the lease has run out without a commit. hold: the run waits to be resolved. retry: the '
  'next step may take over.';
COMMENT ON COLUMN "schema_2"."workflows".idempotency_key IS 'What the step hands to a payment provider and the like.';
COMMENT ON COLUMN "schema_2"."workflows".unsettled IS
  'Steps of unknown outcome that gave way to others, newest last: [{"tool", "digest", "key"}].';
COMMENT ON COLUMN "schema_2"."workflows".released IS
  'Tokens that were let go without a move and take no claim again, newest first.';

CREATE TABLE "schema_2"."workflow_events" (
  workflow_id    bigint NOT NULL,
  version        bigint NOT NULL,
  run            text COLLATE "C" NOT NULL,
  workflow_type  text COLLATE "C" NOT NULL,
  from_state     text NOT NULL,
  to_state       text NOT NULL,
  event          text,
  payload        json,
  actor          text,
  tool           text,
  claim_token    text NOT NULL,
  occurred_at    timestamptz NOT NULL,
  PRIMARY KEY (workflow_id, version)
);

CREATE INDEX ON "schema_2"."workflow_events" (run, occurred_at DESC);

COMMENT ON TABLE "schema_2"."workflow_events" IS
  'Every committed move, appended and never changed. It outlives its run, as an audit log: WHERE '
  'occurred_at < now() - interval ''1 year'' is yours to remove.';
COMMENT ON COLUMN "schema_2"."workflow_events".workflow_id IS
  'The id of the workflow''s row, which goes when the run ends. A run that begins anew under its old key '
  'gets new ones.';
COMMENT ON COLUMN "schema_2"."workflow_events".version IS
  'The workflow''s version after this move: 1, 2, 3 and so on without gaps.';
COMMENT ON COLUMN "schema_2"."workflow_events".event IS 'NULL: a step that succeeded without sending one.';
COMMENT ON COLUMN "schema_2"."workflow_events".claim_token IS
  'The claim that committed it, so that a commit that arrives twice is known.';

INSERT INTO "schema_2"."workflow_migrations" (version) VALUES (1);

DROP FUNCTION IF EXISTS "schema_2"."workflow_read_run"(text, double precision);
ALTER TABLE "schema_2"."workflows" ADD COLUMN ended boolean;
COMMENT ON COLUMN "schema_2"."workflows".ended IS
  'Whether the last commit said that the workflow has come to its end. NULL: none said anything.';
ALTER TABLE "schema_2"."workflow_runs" ADD COLUMN opened_by text;
COMMENT ON COLUMN "schema_2"."workflow_runs".opened_by IS
  'The token of the call that opened the run, so that a call that arrives twice is known. NULL: not opened, but made by a claim.';
COMMENT ON COLUMN "schema_2"."workflow_events".claim_token IS
  'The claim that committed it, or a token of the person who resolved it: so a commit that arrives twice is known.';

INSERT INTO "schema_2"."workflow_migrations" (version) VALUES (2);

CREATE OR REPLACE FUNCTION "schema_2"."workflow_make_run"(request json, replace_living boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  asked  record;
  ttl    interval;
BEGIN
  SELECT * INTO asked
    FROM json_to_record(request) AS r(
      run text, long_key text, principal text, minted boolean, opened_by text, ttl_ms double precision
    );
  ttl := asked.ttl_ms * interval '1 millisecond';

  INSERT INTO "schema_2"."workflow_runs" AS r (run, long_key, principal, minted, opened_by, expires_at)
  VALUES (asked.run, asked.long_key, asked.principal, asked.minted, asked.opened_by, clock_timestamp() + ttl)
      ON CONFLICT (run) DO UPDATE
     SET (principal, minted, opened_by, created_at, expires_at)
       = (EXCLUDED.principal, EXCLUDED.minted, EXCLUDED.opened_by, EXCLUDED.created_at, EXCLUDED.expires_at)
   WHERE replace_living OR r.expires_at <= clock_timestamp();
  IF FOUND THEN
    DELETE FROM "schema_2"."workflows" WHERE run = asked.run;
    -- Whoever makes one clears two away, so that they do not pile up.
    PERFORM "schema_2"."workflow_sweep_runs"(at_most => 2, spared => asked.run);
  END IF;
END
$$;
COMMENT ON FUNCTION "schema_2"."workflow_make_run" IS
  'Starts a run in place of what is left under its key. A run that lives is replaced or left as it is; its '
  'row is locked either way.';

CREATE OR REPLACE FUNCTION "schema_2"."workflow_open"(request json) RETURNS json LANGUAGE plpgsql AS $$
BEGIN
  PERFORM "schema_2"."workflow_make_run"(request, replace_living => false);
  RETURN json_build_object('status', (
    SELECT CASE WHEN opened_by = request->>'opened_by' THEN 'opened' ELSE 'taken' END
      FROM "schema_2"."workflow_runs" WHERE run = request->>'run'
  ));
END
$$;
COMMENT ON FUNCTION "schema_2"."workflow_open" IS
  'Starts a run, unless another one lives under its key: opened, also where it was by the same token, or taken.';

CREATE OR REPLACE FUNCTION "schema_2"."workflow_lock_run"(wanted text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  lives_until timestamptz;
BEGIN
  SELECT expires_at INTO lives_until FROM "schema_2"."workflow_runs" WHERE run = wanted FOR UPDATE;
  RETURN coalesce(lives_until > clock_timestamp(), false);
END
$$;
COMMENT ON FUNCTION "schema_2"."workflow_lock_run" IS 'Waits for the run''s row, and says whether the run is known then.';

CREATE OR REPLACE FUNCTION "schema_2"."workflow_expire_run"(locked text, ttl_ms double precision) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  moment  timestamptz := clock_timestamp();
  ttl     interval := ttl_ms * interval '1 millisecond';
  leased  timestamptz := (SELECT max(lease_until) FROM "schema_2"."workflows" WHERE run = locked);
BEGIN
  -- Left as it is while nine tenths remain, or every look at a run would write.
  UPDATE "schema_2"."workflow_runs"
     SET expires_at = greatest(moment + ttl, leased)
   WHERE run = locked
     AND (expires_at NOT BETWEEN moment + 0.9 * ttl AND moment + ttl OR expires_at < leased);
END
$$;
COMMENT ON FUNCTION "schema_2"."workflow_expire_run" IS
  'Sets when a locked run expires: not before a claim in it does. Without a time to live, only where a claim lives longer.';

CREATE OR REPLACE FUNCTION "schema_2"."workflow_touch_run"(touched text, ttl_ms double precision) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  moment  timestamptz := clock_timestamp();
  ttl     interval := ttl_ms * interval '1 millisecond';
BEGIN
  -- No lock where nothing is to be done, and no wait for one: whoever has it is at work in the run.
  PERFORM FROM "schema_2"."workflow_runs"
    WHERE run = touched AND expires_at > moment
      AND expires_at NOT BETWEEN moment + 0.9 * ttl AND moment + ttl
      FOR UPDATE SKIP LOCKED;
  IF FOUND THEN
    PERFORM "schema_2"."workflow_expire_run"(touched, ttl_ms);
  END IF;
END
$$;
COMMENT ON FUNCTION "schema_2"."workflow_touch_run" IS 'Sets when a known run expires, without waiting for anybody.';

CREATE OR REPLACE FUNCTION "schema_2"."workflow_to_json"(flow "schema_2"."workflows", moment timestamptz) RETURNS json LANGUAGE sql AS $$
  SELECT CASE WHEN flow.id IS NOT NULL THEN json_build_object(
    'workflow', flow.workflow_type,
    'state', flow.state,
    'context', flow.context::text,
    'version', flow.version,
    'updatedAt', floor(extract(epoch FROM flow.updated_at) * 1000),
    'ended', flow.ended,
    'claim', CASE WHEN flow.claim_token IS NOT NULL THEN json_build_object(
      'token', flow.claim_token,
      'tool', flow.claim_tool,
      'digest', flow.claim_digest,
      'uncertain', flow.claim_uncertain,
      'idempotencyKey', flow.idempotency_key,
      'remainingMs', ceil(extract(epoch FROM flow.lease_until - moment) * 1000)
    ) END
  ) END
$$;
COMMENT ON FUNCTION "schema_2"."workflow_to_json" IS 'A row of workflows as the middleware reads it; NULL for a row of NULLs.';

CREATE OR REPLACE FUNCTION "schema_2"."workflow_read_run"(wanted text, ttl_ms double precision, about text DEFAULT NULL)
RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  moment  timestamptz := statement_timestamp();
  seen    json;
BEGIN
  SELECT json_build_object(
           'principal', r.principal,
           'minted', r.minted,
           'now', floor(extract(epoch FROM clock_timestamp()) * 1000),
           'workflows', (
             SELECT json_agg("schema_2"."workflow_to_json"(w, moment) ORDER BY w.id) FROM "schema_2"."workflows" w WHERE w.run = r.run
           )
         )
    INTO seen
    FROM "schema_2"."workflow_runs" r
   WHERE r.run = wanted AND r.expires_at > moment;
  IF NOT EXISTS (SELECT FROM "schema_2"."workflows" WHERE run = wanted AND workflow_type = about AND ended) THEN
    PERFORM "schema_2"."workflow_touch_run"(wanted, ttl_ms);
  END IF;
  RETURN seen;
END
$$;
COMMENT ON FUNCTION "schema_2"."workflow_read_run" IS
  'A known run with all its workflows; NULL where it is unknown. Never waits for a step.';

CREATE OR REPLACE FUNCTION "schema_2"."workflow_runs_in_state"(request json) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  asked  record;
BEGIN
  SELECT * INTO asked
    FROM json_to_record(request) AS r(
      workflow text, state text, for_ms double precision, after_time timestamptz, after_id bigint
    );
  RETURN (
    SELECT coalesce(json_agg(page ORDER BY page.updated_at, page.id), '[]')
      FROM (
        SELECT coalesce(r.long_key, r.run) AS run, w.updated_at, w.id
          FROM "schema_2"."workflows" w JOIN "schema_2"."workflow_runs" r USING (run)
         WHERE left(w.state, 250) = left(asked.state, 250) AND w.state = asked.state
           AND w.workflow_type = asked.workflow
           AND (w.updated_at, w.id) > (asked.after_time, asked.after_id)
           AND w.updated_at <= statement_timestamp() - asked.for_ms * interval '1 millisecond'
           AND r.expires_at > statement_timestamp()
         ORDER BY w.updated_at, w.id
         LIMIT 100
      ) page
  );
END
$$;
COMMENT ON FUNCTION "schema_2"."workflow_runs_in_state" IS
  'The next hundred known runs whose workflow stands in a state, those that stand there longest first.';

CREATE OR REPLACE FUNCTION "schema_2"."workflow_sweep_runs"(at_most integer, spared text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  swept integer;
BEGIN
  DELETE FROM "schema_2"."workflow_runs" WHERE run = ANY (ARRAY(
    SELECT run FROM "schema_2"."workflow_runs"
     WHERE expires_at <= clock_timestamp() AND run IS DISTINCT FROM spared
     LIMIT at_most FOR UPDATE SKIP LOCKED
  ));
  GET DIAGNOSTICS swept = ROW_COUNT;
  RETURN swept;
END
$$;
COMMENT ON FUNCTION "schema_2"."workflow_sweep_runs" IS
  'Removes runs that expired, all but one, and says how many. Waits for nobody.';

CREATE OR REPLACE FUNCTION "schema_2"."workflow_judge_claim"(flow "schema_2"."workflows", moment timestamptz, token text, states text[], initial_state text)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  spent boolean := token = ANY (flow.released) OR EXISTS (
    SELECT FROM "schema_2"."workflow_events"
     WHERE workflow_id = flow.id AND version > flow.version - 16 AND claim_token = token
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
COMMENT ON FUNCTION "schema_2"."workflow_judge_claim" IS
  'What a claim is answered. A workflow that was never claimed is a row of NULLs.';

CREATE OR REPLACE FUNCTION "schema_2"."workflow_claim"(request json) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  asked    record;
  flow     "schema_2"."workflows";
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
    FROM "schema_2"."workflow_runs" r LEFT JOIN "schema_2"."workflows" w ON w.run = r.run AND w.workflow_type = asked.workflow
   WHERE r.run = asked.run AND r.expires_at > moment;
  IF FOUND THEN
    verdict := "schema_2"."workflow_judge_claim"(flow, moment, asked.token, asked.states, asked.state);
    IF verdict <> 'claimed' THEN
      IF flow.ended IS NOT TRUE THEN
        PERFORM "schema_2"."workflow_touch_run"(asked.run, asked.ttl_ms);
      END IF;
      RETURN json_build_object('status', verdict, 'flow', "schema_2"."workflow_to_json"(flow, moment), 'now', floor(extract(epoch FROM clock_timestamp()) * 1000));
    END IF;
  END IF;

  -- Then with the run locked, and made where that is asked for.
  IF NOT "schema_2"."workflow_lock_run"(asked.run) THEN
    IF NOT asked.make_run THEN
      RETURN json_build_object('status', 'unknown');
    END IF;
    PERFORM "schema_2"."workflow_make_run"(request, replace_living => false);
  END IF;
  SELECT * INTO flow FROM "schema_2"."workflows" WHERE run = asked.run AND workflow_type = asked.workflow;
  moment := clock_timestamp();
  verdict := "schema_2"."workflow_judge_claim"(flow, moment, asked.token, asked.states, asked.state);

  IF verdict = 'claimed' AND flow.claim_token = asked.token THEN
    UPDATE "schema_2"."workflows" SET lease_until = moment + lease WHERE id = flow.id RETURNING * INTO flow;
  ELSIF verdict = 'claimed' THEN
    IF flow.id IS NULL THEN
      INSERT INTO "schema_2"."workflows" (run, workflow_type, state, context, version, updated_at)
      VALUES (asked.run, asked.workflow, asked.state, asked.context::json, asked.version, moment)
      RETURNING * INTO flow;
    ELSIF flow.claim_token IS NOT NULL THEN
      -- That claim gives way and its outcome is unknown: its key waits for the same step to come again.
      flow.unsettled := jsonb_path_query_array(flow.unsettled, '$[*] ? (@.key != $settled)', jsonb_build_object('settled', flow.idempotency_key)) || jsonb_build_object(
        'tool', flow.claim_tool, 'digest', flow.claim_digest, 'key', flow.idempotency_key);
    END IF;
    SELECT step->>'key' INTO old_key
      FROM jsonb_array_elements(flow.unsettled) step
     WHERE step->>'tool' = asked.tool AND step->>'digest' = asked.digest;
    UPDATE "schema_2"."workflows"
       SET claim_token     = asked.token,
           claim_tool      = asked.tool,
           claim_digest    = asked.digest,
           claim_uncertain = asked.uncertain,
           idempotency_key = coalesce(old_key, asked.new_key),
           lease_until     = moment + lease,
           unsettled       = jsonb_path_query_array(flow.unsettled, '$[last - 15 to last]')
     WHERE id = flow.id RETURNING * INTO flow;
  END IF;

  PERFORM "schema_2"."workflow_expire_run"(asked.run, CASE WHEN flow.ended THEN NULL ELSE asked.ttl_ms END);
  RETURN json_build_object('status', verdict, 'flow', "schema_2"."workflow_to_json"(flow, moment), 'now', floor(extract(epoch FROM clock_timestamp()) * 1000));
END
$$;
COMMENT ON FUNCTION "schema_2"."workflow_claim" IS 'Takes the lease for a step, or says why not: unknown, state, busy, held.';

CREATE OR REPLACE FUNCTION "schema_2"."workflow_commit"(request json) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  asked    record;
  flow     "schema_2"."workflows";
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
  IF NOT "schema_2"."workflow_lock_run"(asked.run) THEN
    RETURN json_build_object('status', 'unknown');
  END IF;

  UPDATE "schema_2"."workflows"
     SET (state, context, version, updated_at)
       = (asked.state, asked.context::json, version + 1, clock_timestamp()),
         ended = asked.ended,
         unsettled = CASE WHEN asked.settles_all THEN '[]' ELSE CASE WHEN asked.settles IS FALSE THEN unsettled ELSE jsonb_path_query_array(unsettled, '$[*] ? (@.key != $settled)', jsonb_build_object('settled', idempotency_key)) END END,
         released = CASE WHEN settler = asked.token THEN released ELSE (asked.token || array_remove(released, asked.token))[1:16] END,
         (claim_token, claim_tool, claim_digest, claim_uncertain, idempotency_key, lease_until)
       = (NULL, NULL, NULL, NULL, NULL, NULL)
   WHERE run = asked.run AND workflow_type = asked.workflow AND claim_token = asked.token
  RETURNING * INTO flow;
  IF FOUND THEN
    INSERT INTO "schema_2"."workflow_events" (workflow_id, version, run, workflow_type, from_state, to_state,
                           event, payload, actor, tool, claim_token, occurred_at)
    VALUES (flow.id, flow.version, asked.run, asked.workflow, asked.from_state, asked.to_state,
            asked.event, asked.payload::json, asked.actor, asked.tool, settler, flow.updated_at);
    answer := json_build_object('status', 'committed', 'version', flow.version);
  ELSE
    SELECT json_build_object('status', 'committed', 'version', e.version, 'repeated', true) INTO answer
      FROM "schema_2"."workflows" w JOIN "schema_2"."workflow_events" e ON e.workflow_id = w.id
     WHERE w.run = asked.run AND w.workflow_type = asked.workflow AND e.claim_token = settler;
  END IF;

  PERFORM "schema_2"."workflow_expire_run"(asked.run, asked.ttl_ms);
  RETURN coalesce(answer, json_build_object('status', 'lost'));
END
$$;
COMMENT ON FUNCTION "schema_2"."workflow_commit" IS
  'Moves the workflow, appends the event and lets the claim go; or says which version this token has '
  'already made, or that the claim is lost.';

CREATE OR REPLACE FUNCTION "schema_2"."workflow_renew"(request json, lease_ms double precision) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  asked  record;
  lease  timestamptz;
BEGIN
  SELECT * INTO asked FROM json_to_record(request) AS r(run text, workflow text, token text);
  IF NOT "schema_2"."workflow_lock_run"(asked.run) THEN
    RETURN false;
  END IF;
  UPDATE "schema_2"."workflows" SET lease_until = clock_timestamp() + lease_ms * interval '1 millisecond'
   WHERE run = asked.run AND workflow_type = asked.workflow AND claim_token = asked.token
  RETURNING lease_until INTO lease;
  UPDATE "schema_2"."workflow_runs" SET expires_at = lease WHERE run = asked.run AND expires_at < lease;
  RETURN lease IS NOT NULL;
END
$$;
COMMENT ON FUNCTION "schema_2"."workflow_renew" IS 'Makes the lease of a claim end later, and with it the run if need be.';

CREATE OR REPLACE FUNCTION "schema_2"."workflow_release"(request json) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  asked record;
BEGIN
  SELECT * INTO asked FROM json_to_record(request) AS r(run text, workflow text, token text, settles boolean);
  IF "schema_2"."workflow_lock_run"(asked.run) THEN
    UPDATE "schema_2"."workflows" SET unsettled = CASE WHEN asked.settles IS FALSE THEN unsettled ELSE jsonb_path_query_array(unsettled, '$[*] ? (@.key != $settled)', jsonb_build_object('settled', idempotency_key)) END, (claim_token, claim_tool, claim_digest, claim_uncertain, idempotency_key, lease_until)
       = (NULL, NULL, NULL, NULL, NULL, NULL)
     WHERE run = asked.run AND workflow_type = asked.workflow AND claim_token = asked.token;
    UPDATE "schema_2"."workflows" SET released = (asked.token || array_remove(released, asked.token))[1:16]
     WHERE run = asked.run AND workflow_type = asked.workflow;
  END IF;
END
$$;
COMMENT ON FUNCTION "schema_2"."workflow_release" IS
  'Lets the claim go without a move. The token is spent, also one that has no claim yet.';

CREATE OR REPLACE FUNCTION "schema_2"."workflow_history"(wanted text, of_workflow text, at_most bigint) RETURNS json LANGUAGE sql AS $$
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
        FROM "schema_2"."workflow_runs" r JOIN "schema_2"."workflows" w USING (run) JOIN "schema_2"."workflow_events" e ON e.workflow_id = w.id
       WHERE r.run = wanted AND r.expires_at > statement_timestamp() AND w.workflow_type = of_workflow
       ORDER BY e.version DESC
       LIMIT at_most
    ) entry
$$;
COMMENT ON FUNCTION "schema_2"."workflow_history" IS 'The newest events of a workflow of a known run, oldest first.';
