/**
 * The listings: runs in a state, held, stuck, counted, and those of a principal. Hides the partial
 * index that each of them reads, so that none goes through all runs.
 *
 * Each looks up the run of every row that it finds. The `LIMIT 1` keeps the planner from joining
 * the tables, which would read all runs for the sake of a few.
 */
import {
  FIXED_PATH,
  hashed,
  known,
  milliseconds,
  NOW,
  needed,
  type PostgresNames,
  sessionEnded,
} from './names.ts';

export function createIndexFunctions(names: PostgresNames): string {
  return [inState, held, stuck, count, list].map((create) => create(names)).join('');
}

const OF_WORKFLOW = `${hashed('w.workflow_type')} = ${hashed('asked.workflow')}
           AND w.workflow_type = asked.workflow`;

/** Joins the run `r` of the workflow `w`, if the run is known. */
function knownRun(names: PostgresNames): string {
  return `CROSS JOIN LATERAL (
          SELECT coalesce(r.long_key, r.run) AS key, ${sessionEnded('moment')} AS is_over
            FROM ${names.runs} r WHERE r.run = w.run AND ${known(names, 'moment')} LIMIT 1
        ) r`;
}

const inState = (names: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${names.inState}(request json) RETURNS json
LANGUAGE plpgsql ${FIXED_PATH} AS $$
DECLARE
  asked   record;
  moment  timestamptz := statement_timestamp();
BEGIN
  SELECT * INTO asked
    FROM json_to_record(request) AS r(
      workflow text, state text, for_ms double precision, after_time timestamptz, after_id bigint
    );
  RETURN (
    SELECT coalesce(json_agg(page ORDER BY page.updated_at, page.id), '[]')
      FROM (
        SELECT r.key AS run, w.updated_at, w.id
          FROM ${names.workflows} w ${knownRun(names)}
         WHERE left(w.state, 250) = left(asked.state, 250) AND w.state = asked.state
           AND w.workflow_type = asked.workflow
           AND (w.updated_at, w.id) > (asked.after_time, asked.after_id)
           AND w.updated_at <= moment - asked.for_ms * interval '1 millisecond'
         ORDER BY w.updated_at, w.id
         LIMIT 100
      ) page
  );
END
$$;
COMMENT ON FUNCTION ${names.inState} IS
  'The next hundred known runs whose workflow is in a state, those that have been there longest '
  'first.';
`;

/** A function for pages of workflows in the order of a time. */
function pages(
  names: PostgresNames,
  { name, time, found, comment }: Readonly<Record<'name' | 'time' | 'found' | 'comment', string>>,
): string {
  return `
CREATE OR REPLACE FUNCTION ${name}(request json) RETURNS json
LANGUAGE plpgsql ${FIXED_PATH} AS $$
DECLARE
  asked   record;
  moment  timestamptz := statement_timestamp();
BEGIN
  SELECT * INTO asked
    FROM json_to_record(request) AS r(
      workflow text, states text[], for_ms double precision, at_most bigint,
      after_time timestamptz, after_id bigint
    );
  RETURN (
    SELECT json_build_object(
             'runs', coalesce(json_agg(json_build_object(
               'run', page.key,
               'sessionEnded', page.is_over,
               'flow', page.flow,
               'time', page.time,
               'id', page.id
             ) ORDER BY page.time, page.id), '[]'),
             'now', ${NOW}
           )
      FROM (
        SELECT r.key, r.is_over, ${names.toJson}(w, moment) AS flow, w.${time} AS time, w.id
          FROM ${names.workflows} w ${knownRun(names)}
         WHERE ${OF_WORKFLOW} AND ${found}
           AND (w.${time}, w.id) > (asked.after_time, asked.after_id)
         ORDER BY w.${time}, w.id
         LIMIT asked.at_most
      ) page
  );
END
$$;
COMMENT ON FUNCTION ${name} IS '${comment}';
`;
}

const held = (names: PostgresNames) =>
  pages(names, {
    name: names.held,
    time: 'lease_until',
    found: "w.claim_token IS NOT NULL AND w.claim_uncertain = 'hold' AND w.lease_until <= moment",
    comment: 'A page of known runs that wait to be resolved, in the order in which leases ended.',
  });

const stuck = (names: PostgresNames) =>
  pages(names, {
    name: names.stuck,
    time: 'updated_at',
    found: `w.ended IS NOT TRUE AND w.updated_at <= moment - asked.for_ms * interval '1 millisecond'
           AND (asked.states IS NULL OR w.state = ANY (asked.states))`,
    comment: 'A page of known runs that have not ended, those that moved longest ago first.',
  });

/** Up to so many rows of expired runs, {@link fewAreUnknown} is cheaper. */
const FEW_EXPIRED = 1000;

/** The same condition as {@link knownRun}, but by a list of the expired runs. */
function fewAreUnknown(names: PostgresNames): string {
  return `NOT EXISTS (
          SELECT FROM (
            SELECT r.run FROM ${names.runs} r
             WHERE r.expires_at <= moment AND NOT ${needed(names, 'r.run', 'moment')}
             ORDER BY r.expires_at LIMIT ${FEW_EXPIRED}
          ) expired WHERE expired.run = w.run
        )`;
}

const count = (names: PostgresNames) => {
  const { count, runs, workflows } = names;
  const countOpen = (join: string, where: string) => `
    SELECT coalesce(json_agg(json_build_object(
             'state', state, 'runs', runs, 'stuck', stuck
           )), '[]') INTO states
      FROM (
        SELECT w.state, count(*) AS runs,
               count(*) FILTER (
                 WHERE w.updated_at <= moment - asked.for_ms * interval '1 millisecond'
               ) AS stuck
          FROM ${workflows} w ${join}
         WHERE ${OF_WORKFLOW} AND w.ended IS NOT TRUE ${where}
         GROUP BY w.state
      ) each_state;`;
  return `
CREATE OR REPLACE FUNCTION ${count}(request json) RETURNS json
LANGUAGE plpgsql ${FIXED_PATH} AS $$
DECLARE
  asked   record;
  moment  timestamptz := statement_timestamp();
  states  json;
  claims  record;
BEGIN
  SELECT * INTO asked FROM json_to_record(request) AS r(workflow text, for_ms double precision);
  PERFORM FROM ${runs} WHERE expires_at <= moment ORDER BY expires_at OFFSET ${FEW_EXPIRED} LIMIT 1;
  IF FOUND THEN${countOpen(knownRun(names), '')}
  ELSE${countOpen('', `AND ${fewAreUnknown(names)}`)}
  END IF;
  SELECT count(*) FILTER (WHERE w.lease_until <= moment AND w.claim_uncertain = 'hold') AS held,
         count(*) FILTER (WHERE w.lease_until > moment) AS running,
         ${milliseconds('min(w.claimed_at)')} AS oldest
    INTO claims
    FROM ${workflows} w ${knownRun(names)}
   WHERE ${OF_WORKFLOW} AND w.claim_token IS NOT NULL;
  RETURN json_build_object('states', states, 'held', claims.held, 'running', claims.running,
                           'oldestClaim', claims.oldest, 'now', ${NOW});
END
$$;
COMMENT ON FUNCTION ${count} IS
  'How many known runs of a workflow have not ended, by state, and how many claims there are.';
`;
};

const list = (names: PostgresNames) => `
CREATE OR REPLACE FUNCTION ${names.list}(request json) RETURNS json
LANGUAGE plpgsql ${FIXED_PATH} AS $$
DECLARE
  asked   record;
  moment  timestamptz := statement_timestamp();
BEGIN
  SELECT * INTO asked
    FROM json_to_record(request) AS r(principal text, at_most bigint, after_run text);
  RETURN (
    SELECT coalesce(json_agg(json_build_object(
             'run', page.run, 'key', page.key
           ) ORDER BY page.run), '[]')
      FROM (
        SELECT r.run, coalesce(r.long_key, r.run) AS key
          FROM ${names.runs} r
         WHERE r.principal IS NOT NULL
           AND ${hashed('r.principal')} = ${hashed('asked.principal')}
           AND r.principal = asked.principal
           AND (asked.after_run IS NULL OR r.run > asked.after_run)
           AND ${known(names, 'moment')}
         ORDER BY r.run
         LIMIT asked.at_most
      ) page
  );
END
$$;
COMMENT ON FUNCTION ${names.list} IS 'A page of the known runs of a principal.';
`;
