/**
 * The tables and functions. No function holds a rule of a workflow: they compare revisions, write
 * what they are given, and give the time.
 */
import { REVISION_LENGTH, REVISIONS_LENGTH } from '../document/run-text.ts';
import { TOKENS_KEPT } from '../run-state.ts';
import {
  FIXED_PATH,
  hashed,
  milliseconds,
  NOW,
  needed,
  POSTGRES_FORMAT,
  type PostgresNames,
  timeOf,
} from './names.ts';

/**
 * The tables. A context and an entry must come back as the caller saved them. So they are `json`:
 * `jsonb` reorders keys, rewrites numbers and refuses the escape for NUL. A query can still use
 * `context::jsonb`.
 */
export function createTables({ runs, workflows, events, switches }: PostgresNames): string {
  return `
CREATE TABLE ${runs} (
  run            text COLLATE "C" PRIMARY KEY,
  principal      text,
  created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at     timestamptz NOT NULL,
  revisions      text NOT NULL,
  life           json NOT NULL
) WITH (fillfactor = 70);

COMMENT ON TABLE ${runs} IS
  'One row for each run: a client''s session, or what else names a run.';
COMMENT ON COLUMN ${runs}.run IS
  'The run key. Here and in every other text column a backslash is doubled, and NUL and half '
  'surrogate pairs are written \\uXXXX. A key over 1000 bytes is its beginning and a SHA-256 '
  'digest.';
COMMENT ON COLUMN ${runs}.principal IS 'Who may use the run. NULL: unauthenticated callers.';
COMMENT ON COLUMN ${runs}.expires_at IS
  'From then on the session is over. The run stays known while a workflow of it is needed. Any '
  'other run is unknown then, also while its row is here.';
COMMENT ON COLUMN ${runs}.revisions IS 'Names of the last writes of the row, the newest first.';
COMMENT ON COLUMN ${runs}.life IS
  'The session, the token that opened it, and whether it has ended.';
CREATE INDEX ON ${runs} (expires_at);
CREATE INDEX ON ${runs} (${hashed('principal')}, run) WHERE principal IS NOT NULL;

CREATE TABLE ${workflows} (
  id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  run              text COLLATE "C" NOT NULL REFERENCES ${runs} ON DELETE CASCADE,
  workflow_type    text COLLATE "C" NOT NULL,
  created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  context          json,
  settled          text NOT NULL,
  head             json NOT NULL,
  state            text COLLATE "C" NOT NULL,
  version          bigint NOT NULL,
  updated_at       timestamptz NOT NULL,
  ended            boolean,
  frozen           json,
  claim_uncertain  text,
  claim_tool       text,
  claimed_at       timestamptz,
  lease_until      timestamptz,
  unsettled_since  timestamptz,
  needed_until     timestamptz NOT NULL,
  revisions        text NOT NULL,
  claim            json,
  lease            text
) WITH (fillfactor = 70);

-- A name may be longer than an entry of an index, so they hold its hash and its beginning.
CREATE UNIQUE INDEX ON ${workflows} (run, ${hashed('workflow_type')});
CREATE INDEX ON ${workflows} (left(state, 250), updated_at, run);
CREATE INDEX ON ${workflows} (${hashed('workflow_type')}, claim_uncertain, lease_until, run)
  WHERE lease_until IS NOT NULL;
CREATE INDEX ON ${workflows} (${hashed('workflow_type')}, updated_at, run) WHERE ended IS NOT TRUE;
CREATE INDEX ON ${workflows} (${hashed('workflow_type')}, unsettled_since, run)
  WHERE unsettled_since IS NOT NULL;

COMMENT ON TABLE ${workflows} IS
  'Where each run is in each of its workflows. The store reads context, head, claim, lease and '
  'settled; the other columns are for its lists, and for queries.';
COMMENT ON COLUMN ${workflows}.workflow_type IS 'The gate''s id.';
COMMENT ON COLUMN ${workflows}.context IS
  'What the workflow carries along. NULL: nothing, which is not the JSON value null.';
COMMENT ON COLUMN ${workflows}.version IS 'How many moves were saved.';
COMMENT ON COLUMN ${workflows}.ended IS
  'Whether the last commit said that the workflow has come to its end. NULL: no commit yet.';
COMMENT ON COLUMN ${workflows}.frozen IS
  'Who has stopped the run, and why: {"actor", "note"}. NULL: it goes on.';
COMMENT ON COLUMN ${workflows}.claim_uncertain IS
  'What follows once the lease has run out without a commit. hold: the run waits to be resolved, '
  'and stays until then. retry: the next step may take over. NULL: there is no claim.';
COMMENT ON COLUMN ${workflows}.claim_tool IS 'The tool whose step has the claim.';
COMMENT ON COLUMN ${workflows}.claimed_at IS 'When the claim was taken.';
COMMENT ON COLUMN ${workflows}.lease_until IS 'When the lease of the claim ends.';
COMMENT ON COLUMN ${workflows}.unsettled_since IS
  'Since when the run has had steps of unknown outcome that may be repeated, or from when on it '
  'will where nothing comes of its claim. NULL: neither.';
COMMENT ON COLUMN ${workflows}.needed_until IS
  'Until when the run stays for the sake of this workflow, whatever its session does.';
COMMENT ON COLUMN ${workflows}.revisions IS
  'Names of the last writes of the row, the newest first.';
COMMENT ON COLUMN ${workflows}.head IS
  'Where the workflow is, its freeze, its steps of unknown outcome, and the head of its trail.';
COMMENT ON COLUMN ${workflows}.claim IS
  'Whose step is under way, or ended with an unknown outcome. Its lease has a column of its own.';
COMMENT ON COLUMN ${workflows}.settled IS
  'Digests of the last tokens that were committed, each with its version, or released.';

CREATE TABLE ${events} (
  workflow_id       bigint NOT NULL,
  seq               bigint NOT NULL,
  run               text COLLATE "C" NOT NULL,
  principal         text,
  workflow_type     text COLLATE "C" NOT NULL,
  version           bigint NOT NULL,
  attempt           bigint NOT NULL,
  from_state        text NOT NULL,
  to_state          text,
  event             text,
  outcome           text,
  kind              text,
  tool              text,
  actor             text,
  occurred_at       timestamptz NOT NULL,
  entry             json NOT NULL,
  PRIMARY KEY (workflow_id, seq)
);

CREATE INDEX ON ${events} (run, occurred_at DESC);
CREATE INDEX ON ${events} (${hashed('principal')}) WHERE principal IS NOT NULL;

COMMENT ON TABLE ${events} IS
  'The trail of each workflow: every attempt and every move, appended and never changed. It '
  'outlives its run, as an audit log. docs/operate/stores.md says how to keep it for a time and no '
  'longer, and how to remove what is left of a person.';
COMMENT ON COLUMN ${events}.workflow_id IS
  'The id of the workflow''s row, which goes when the run ends. A run that begins anew under its '
  'old key gets new ones.';
COMMENT ON COLUMN ${events}.seq IS
  'The place in the workflow''s trail: 1, 2, 3 and so on without gaps.';
COMMENT ON COLUMN ${events}.principal IS
  'Whom the run belonged to, also once it is gone. NULL: unauthenticated callers.';
COMMENT ON COLUMN ${events}.version IS
  'The workflow''s version after it: one more than before where to_state is there.';
COMMENT ON COLUMN ${events}.attempt IS
  'How many attempts there were since the last move, this one included.';
COMMENT ON COLUMN ${events}.to_state IS 'NULL: nothing was committed.';
COMMENT ON COLUMN ${events}.event IS 'NULL: a step that succeeded without sending one.';
COMMENT ON COLUMN ${events}.outcome IS
  'What became of the call: succeeded, failed, input_required, not_run, unknown, refused. NULL: it '
  'was no call.';
COMMENT ON COLUMN ${events}.kind IS 'What kind of outcome, such as tool_error or taken_over.';
COMMENT ON COLUMN ${events}.actor IS 'Who made the call or the move.';
COMMENT ON COLUMN ${events}.entry IS
  'The whole entry, as history() gives it and as its hash covers it. The other columns are copies '
  'of its members, for queries.';

CREATE TABLE ${switches} (
  workflow_type  text COLLATE "C" PRIMARY KEY,
  value          json NOT NULL,
  revision       text NOT NULL,
  changed_at     timestamptz NOT NULL DEFAULT clock_timestamp()
);

COMMENT ON TABLE ${switches} IS
  'What operators have set for all runs of a workflow, such as a freeze. A row never expires.';
COMMENT ON COLUMN ${switches}.workflow_type IS
  'The gate''s id. One over 1000 bytes is its beginning and a SHA-256 digest.';
COMMENT ON COLUMN ${switches}.revision IS 'Names the last write of the row.';
`;
}

/** How many expired runs go whenever one is made. */
const SWEPT_BY_NEW = 2;

export function createFunctions(names: PostgresNames): string {
  return [...[format, look, read, sweep, forget, swap], ...[find, count, swapSwitch]]
    .map((create) => create(names))
    .join('');
}

/** The planner knows the answer of an immutable function, so asking for it costs nothing. */
const format = ({ format }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${format}() RETURNS integer
LANGUAGE plpgsql IMMUTABLE ${FIXED_PATH} AS 'BEGIN RETURN ${POSTGRES_FORMAT}; END';
COMMENT ON FUNCTION ${format} IS
  'The format of these tables. A process that knows another one changes nothing.';
`;

const look = ({ look, runs, workflows, events }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${look}(wanted text, chosen text[], trail text, at_most bigint)
RETURNS json LANGUAGE plpgsql ${FIXED_PATH} AS $$
BEGIN
  RETURN (
    SELECT json_build_object(
      'revisions', r.revisions, 'life', r.life::text,
      'flows', (
        SELECT coalesce(json_agg(json_build_object(
                 'revisions', w.revisions, 'head', w.head::text, 'claim', w.claim::text,
                 'lease', w.lease, 'data', w.context::text, 'settled', w.settled
               )), '[]')
          FROM ${workflows} w
         WHERE w.run = r.run AND (chosen IS NULL OR w.workflow_type = ANY (chosen))
      ),
      'entries', CASE WHEN trail IS NOT NULL THEN (
        SELECT coalesce(json_agg(newest.entry ORDER BY newest.seq), '[]')
          FROM (
            SELECT e.seq, e.entry::text AS entry FROM ${events} e
             WHERE e.workflow_id = (
               SELECT w.id FROM ${workflows} w
                WHERE w.run = r.run AND ${hashed('w.workflow_type')} = ${hashed('trail')}
                  AND w.workflow_type = trail
             ) ORDER BY e.seq DESC LIMIT at_most
          ) newest
      ) END
    ) FROM ${runs} r WHERE r.run = wanted
  );
END
$$;
COMMENT ON FUNCTION ${look} IS
  'The parts of a run with all or some of its workflows, and the newest entries of one trail.';
`;

/** In PL/pgSQL, since a function in SQL is planned anew with each call. */
const read = ({ read, look }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${read}(request json) RETURNS json
LANGUAGE plpgsql ${FIXED_PATH} AS $$
BEGIN
  RETURN (
    SELECT json_build_object('runs', coalesce(json_agg(
             ${look}(key, NULL, request ->> 'trail', (request ->> 'limit')::bigint)
             ORDER BY place
           ), '[]'), 'now', ${NOW})
      FROM json_array_elements_text(request -> 'keys') WITH ORDINALITY AS asked(key, place)
  );
END
$$;
COMMENT ON FUNCTION ${read} IS 'The parts of several runs.';
`;

/** The row of the workflow `n.workflow`. */
const OF_PART = `w.run = asked.key AND ${hashed('w.workflow_type')} = ${hashed('n.workflow')}
       AND w.workflow_type = n.workflow`;

/**
 * A writer first locks the row of the run, if it changes or judges that, claims or adds a workflow,
 * and then the rows of workflows. So two of them never wait for each other, and a commit in a long
 * transaction holds only the row of its own workflow. A step that judges other workflows only reads
 * them: no claim of theirs comes while it has the row of the run.
 */
const judge = ({ runs, workflows }: PostgresNames) => `
  IF asked.whole IS NOT NULL THEN
    PERFORM FROM ${runs} r WHERE r.run = asked.key FOR UPDATE;
    PERFORM FROM ${workflows} w
     WHERE w.run = asked.key AND NOT asked."isStep" ORDER BY w.id FOR UPDATE;
  ELSIF asked.life IS NOT NULL OR asked.adds THEN
    -- Who adds a workflow has no row of it to lock: of two, the second must see the first one's.
    PERFORM FROM ${runs} r WHERE r.run = asked.key FOR NO KEY UPDATE;
  ELSIF asked.claims THEN
    PERFORM FROM ${runs} r WHERE r.run = asked.key FOR KEY SHARE;
  END IF;
  FOR n IN SELECT * FROM json_to_recordset(asked.judged) AS j(workflow text, revision text) LOOP
    SELECT left(w.revisions, ${REVISION_LENGTH}) INTO revised FROM ${workflows} w
     WHERE ${OF_PART} FOR NO KEY UPDATE;
    IF revised IS DISTINCT FROM n.revision THEN
      lost := lost || n.workflow;
    END IF;
  END LOOP;
  FOR n IN SELECT * FROM json_to_recordset(asked.seen) AS j(workflow text, revision text) LOOP
    SELECT left(w.revisions, ${REVISION_LENGTH}) INTO revised FROM ${workflows} w
     WHERE ${OF_PART};
    is_other := is_other OR revised IS DISTINCT FROM n.revision;
  END LOOP;
  -- A statement of its own: after all waiting it sees what is there.
  SELECT left(r.revisions, ${REVISION_LENGTH}) INTO revised FROM ${runs} r WHERE r.run = asked.key;
  is_other := is_other OR revised IS DISTINCT FROM asked.expected;
  IF asked.whole IS NOT NULL THEN
    is_other := is_other
      OR asked.whole <> (SELECT count(*) FROM ${workflows} w WHERE w.run = asked.key);
  END IF;`;

/** What a workflow has in columns for lists and queries, of its part `n` of a request. */
const COPIES = {
  state: 'n.state',
  version: 'n.version',
  updated_at: timeOf('n.updated'),
  ended: 'n.ended',
  frozen: 'n.frozen::json',
  claim_uncertain: 'n.uncertain',
  claim_tool: 'n.tool',
  claimed_at: timeOf('n.since'),
  lease_until: timeOf('n.until'),
  unsettled_since: timeOf('n.unsettled'),
  needed_until: `coalesce(${timeOf('n.needed')}, 'infinity')`,
};

/** Its texts. A part has only those that change, and an empty one where there is none any more. */
const TEXTS = {
  context: ['n.data', 'json'],
  head: ['n.head', 'json'],
  claim: ['n.claim', 'json'],
  lease: ['n.lease', 'text'],
} as const;

const CHANGED_COLUMNS = [
  ...Object.entries(COPIES).map(([column, value]) => `${column} = ${value}`),
  ...Object.entries(TEXTS).map(([column, [text, type]]) => {
    return `${column} = CASE WHEN ${text} IS NULL THEN w.${column} ELSE nullif(${text}, '')::${type} END`;
  }),
].join(`,
           `);

const NEW_COLUMNS = [...Object.keys(COPIES), ...Object.keys(TEXTS)].join(', ');
const NEW_VALUES = [
  ...Object.values(COPIES),
  ...Object.values(TEXTS).map(([text, type]) => `nullif(${text}, '')::${type}`),
].join(', ');

/** SQL for a column of revisions, with this write's in front. */
function revised(column: string): string {
  return `left(asked.revision || ${column}, ${REVISIONS_LENGTH})`;
}

const swap = (names: PostgresNames) => {
  const { swap, look, runs, workflows, events, sweep } = names;
  return `
CREATE OR REPLACE FUNCTION ${swap}(request json) RETURNS json
LANGUAGE plpgsql ${FIXED_PATH} AS $$
DECLARE
  asked     record;
  n         record;
  revised   text;
  flow      bigint;
  -- Workflows with another revision; and whether the answer must have all of the run.
  lost      text[] := '{}';
  is_other  boolean := false;
BEGIN
  -- Each look into the request would read all of it.
  SELECT * INTO asked FROM json_to_record(request) AS r(
    key text, principal text, "isNew" boolean, "isGone" boolean, "isStep" boolean, adds boolean,
    claims boolean, whole bigint, expected text, judged json, seen json, revision text, life text,
    expires float8, flows json
  );${judge(names)}
  IF NOT is_other AND lost = '{}' AND asked."isNew" THEN
    -- Only the row that is locked and judged: another writer may have made one since.
    IF asked.expected IS NOT NULL THEN
      DELETE FROM ${runs} r WHERE r.run = asked.key;
    END IF;
    INSERT INTO ${runs} (run, principal, expires_at, revisions, life)
    VALUES (asked.key, asked.principal, to_timestamp(0), '', '{}')
        ON CONFLICT DO NOTHING;
    is_other := NOT FOUND;
  END IF;
  IF is_other OR lost <> '{}' THEN
    RETURN json_build_object(
      'swapped', false, 'isWhole', is_other, 'now', ${NOW},
      'run', ${look}(asked.key, CASE WHEN NOT is_other THEN lost END, NULL, 0)
    );
  END IF;
  IF asked."isGone" THEN
    -- Its trail stays, as an audit log.
    DELETE FROM ${runs} r WHERE r.run = asked.key;
  END IF;
  IF asked.life IS NOT NULL THEN
    UPDATE ${runs} r
       SET principal = asked.principal, expires_at = ${timeOf('asked.expires')},
           revisions = ${revised('r.revisions')}, life = asked.life::json
     WHERE r.run = asked.key;
  END IF;
  FOR n IN SELECT * FROM json_to_recordset(asked.flows) AS f(
    workflow text, state text, version bigint, updated float8, ended boolean, frozen text,
    uncertain text, tool text, since float8, until float8, unsettled float8, needed float8,
    head text, claim text, lease text, data text, settled text, entries json
  ) LOOP
    UPDATE ${workflows} w
       SET ${CHANGED_COLUMNS},
           revisions = ${revised('w.revisions')},
           settled = CASE WHEN n.settled = '' THEN w.settled ELSE (
             SELECT string_agg(token, ' ' ORDER BY place) FROM (
               SELECT * FROM unnest(string_to_array(ltrim(w.settled || ' ' || n.settled), ' '))
                 WITH ORDINALITY AS each(token, place)
                ORDER BY place DESC LIMIT ${TOKENS_KEPT}
             ) newest
           ) END
     WHERE ${OF_PART}
    RETURNING w.id INTO flow;
    IF NOT FOUND THEN
      INSERT INTO ${workflows} (run, workflow_type, revisions, settled, ${NEW_COLUMNS})
      VALUES (asked.key, n.workflow, asked.revision, n.settled, ${NEW_VALUES})
      RETURNING id INTO flow;
    END IF;
    INSERT INTO ${events} (
      workflow_id, seq, run, principal, workflow_type, version, attempt, from_state, to_state,
      event, outcome, kind, tool, actor, occurred_at, entry
    )
    SELECT flow, e.seq, asked.key, asked.principal, n.workflow, e.version, e.attempt, e."from",
           e."to", e.event, e.outcome, e.kind, e.tool, e.actor, ${timeOf('e.at')}, e.entry::json
      FROM json_to_recordset(n.entries) AS e(
        seq bigint, version bigint, attempt bigint, "from" text, "to" text, event text,
        outcome text, kind text, tool text, actor text, at float8, entry text
      );
  END LOOP;
  IF asked."isNew" THEN
    PERFORM ${sweep}(${SWEPT_BY_NEW}, NULL);
  END IF;
  RETURN json_build_object('swapped', true, 'now', ${NOW});
END
$$;
COMMENT ON FUNCTION ${swap} IS
  'Writes parts of a run, or removes it, if what is judged has the expected revisions.';
`;
};

const sweep = (names: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${names.sweep}(at_most integer, owner text)
RETURNS json LANGUAGE plpgsql ${FIXED_PATH} AS $$
DECLARE
  moment   timestamptz := clock_timestamp();
  gone     text[];
  removed  bigint;
BEGIN
  -- One at a time is enough: a run that another writer has is left to the next sweep.
  SELECT array_agg(expired.run) INTO gone FROM (
    SELECT r.run FROM ${names.runs} r
     WHERE r.expires_at <= moment AND NOT ${needed(names, 'moment')}
       AND (owner IS NULL
            OR (${hashed('r.principal')} = ${hashed('owner')} AND r.principal = owner))
     ORDER BY r.expires_at LIMIT at_most FOR UPDATE SKIP LOCKED
  ) expired;
  -- A claim may have come while the rows were read.
  DELETE FROM ${names.runs} r
   WHERE r.run = ANY (gone) AND r.expires_at <= moment AND NOT ${needed(names, 'moment')};
  GET DIAGNOSTICS removed = ROW_COUNT;
  RETURN json_build_object('looked', coalesce(array_length(gone, 1), 0), 'removed', removed);
END
$$;
COMMENT ON FUNCTION ${names.sweep} IS
  'Removes some of the runs that have expired, of one principal or of all.';
`;

const forget = ({ forget, workflows, events }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${forget}(owner text, at_most integer) RETURNS integer
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
COMMENT ON FUNCTION ${forget} IS
  'Removes some of the trails of a person''s runs that are gone, and says how many entries.';
`;

/** By kind of list, which rows it has, in the order of which column, and with which label. */
const LISTS = {
  open: { column: 'updated_at', where: 'w.ended IS NOT TRUE', label: 'w.state' },
  ended: { column: 'updated_at', where: 'w.ended', label: 'w.state' },
  claimed: {
    column: 'lease_until',
    where: 'w.lease_until IS NOT NULL',
    label: 'w.claim_uncertain',
  },
  unsettled: {
    column: 'unsettled_since',
    where: 'w.unsettled_since IS NOT NULL',
    label: `'retry'`,
  },
  since: { column: 'claimed_at', where: 'w.lease_until IS NOT NULL', label: 'w.claim_uncertain' },
} as const;

const OF_WORKFLOW = `${hashed('w.workflow_type')} = ${hashed('asked.of')}
           AND w.workflow_type = asked.of`;

const find = ({ find, runs, workflows }: PostgresNames) => {
  const page = (rows: string) => `
    RETURN (
      SELECT coalesce(json_agg(json_build_object('key', page.key, 'score', page.score)), '[]')
        FROM (${rows}) page
    );`;
  const pages = Object.entries(LISTS).map(([kind, { column, where, label }]) => {
    // The index on states has their beginnings.
    const isMeant =
      label === 'w.state'
        ? 'left(w.state, 250) = ANY (beginnings) AND w.state = ANY (asked.labels)'
        : `${label} = ANY (asked.labels)`;
    const rows = (labelled: string) =>
      page(`
        SELECT w.run AS key, ${milliseconds(`w.${column}`)} AS score FROM ${workflows} w
         WHERE ${OF_WORKFLOW} AND ${where}${labelled}
           AND w.${column} <= ${timeOf('asked."upTo"')}
           AND (w.${column}, w.run) > (${timeOf('asked.score')}, asked.key)
         ORDER BY w.${column}, w.run LIMIT asked."limit"`);
    return `
  ELSIF asked.kind = '${kind}' AND asked.labels IS NULL THEN${rows('')}
  ELSIF asked.kind = '${kind}' THEN${rows(` AND ${isMeant}`)}`;
  });
  return `
CREATE OR REPLACE FUNCTION ${find}(request json) RETURNS json
LANGUAGE plpgsql ${FIXED_PATH} AS $$
DECLARE
  asked       record;
  beginnings  text[];
BEGIN
  SELECT * INTO asked FROM json_to_record(request) AS r(
    kind text, of text, labels text[], "upTo" float8, score float8, key text, "limit" bigint
  );
  beginnings := ARRAY(SELECT left(label, 250) FROM unnest(asked.labels) label);
  IF asked.kind = 'owned' THEN${page(`
        SELECT r.run AS key, 0 AS score FROM ${runs} r
         WHERE r.principal IS NOT NULL AND ${hashed('r.principal')} = ${hashed('asked.of')}
           AND r.principal = asked.of AND r.run > asked.key
         ORDER BY r.run LIMIT asked."limit"`)}${pages.join('')}
  END IF;
END
$$;
COMMENT ON FUNCTION ${find} IS 'The next rows of a list, in its order.';
`;
};

/** Up to so many expired runs, a count leaves them out by a list of them, which is cheaper. */
const FEW_EXPIRED = 1000;

const count = (names: PostgresNames) => {
  const { count, runs, workflows } = names;
  const isGone = `r.expires_at <= moment AND NOT ${needed(names, 'moment')}`;
  const byLook = `NOT EXISTS (SELECT FROM ${runs} r WHERE r.run = w.run AND ${isGone})`;
  const byList = `NOT EXISTS (
             SELECT FROM (
               SELECT r.run FROM ${runs} r WHERE ${isGone}
                ORDER BY r.expires_at LIMIT ${FEW_EXPIRED}
             ) gone WHERE gone.run = w.run
           )`;
  const tally = (
    { column, where, label }: (typeof LISTS)['open' | 'claimed' | 'unsettled'],
    known: string,
  ) => `
    RETURN (
      SELECT coalesce(json_agg(json_build_object(
               'label', tally.label, 'entries', tally.entries, 'upTo', tally.up_to
             )), '[]')
        FROM (
          SELECT ${label} AS label, count(*) AS entries,
                 count(*) FILTER (WHERE w.${column} <= ${timeOf('asked."upTo"')}) AS up_to
            FROM ${workflows} w
           WHERE ${OF_WORKFLOW} AND ${where} AND ${known}
           GROUP BY 1
        ) tally
    );`;
  return `
CREATE OR REPLACE FUNCTION ${count}(request json) RETURNS json
LANGUAGE plpgsql ${FIXED_PATH} AS $$
DECLARE
  asked   record;
  moment  timestamptz;
BEGIN
  SELECT * INTO asked
    FROM json_to_record(request) AS r(kind text, of text, "upTo" float8, now float8);
  moment := ${timeOf('asked.now')};
  IF asked.kind = 'claimed' THEN${tally(LISTS.claimed, byLook)}
  ELSIF asked.kind = 'unsettled' THEN${tally(LISTS.unsettled, byLook)}
  END IF;
  PERFORM FROM ${runs} WHERE expires_at <= moment ORDER BY expires_at OFFSET ${FEW_EXPIRED} LIMIT 1;
  IF FOUND THEN${tally(LISTS.open, byLook)}
  ELSE${tally(LISTS.open, byList)}
  END IF;
END
$$;
COMMENT ON FUNCTION ${count} IS
  'How many runs of a list there are, by label. Expired ones do not count.';
`;
};

const swapSwitch = ({ switches, swapSwitch }: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${swapSwitch}(request json) RETURNS boolean
LANGUAGE plpgsql ${FIXED_PATH} AS $$
DECLARE
  asked  record;
BEGIN
  SELECT * INTO asked
    FROM json_to_record(request) AS r(workflow text, expected text, revision text, value text);
  -- Of several writers the first wins: the others wait for its row, and find another revision.
  IF asked.expected IS NULL THEN
    INSERT INTO ${switches} (workflow_type, value, revision)
    VALUES (asked.workflow, asked.value::json, asked.revision)
        ON CONFLICT (workflow_type) DO NOTHING;
  ELSE
    UPDATE ${switches}
       SET (value, revision, changed_at)
         = (asked.value::json, asked.revision, clock_timestamp())
     WHERE workflow_type = asked.workflow AND revision = asked.expected;
  END IF;
  RETURN FOUND;
END
$$;
COMMENT ON FUNCTION ${swapSwitch} IS
  'Replaces the switch of a workflow that has the expected revision, or makes it where none is '
  'expected.';
`;
