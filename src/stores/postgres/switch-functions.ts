/**
 * The functions of a workflow's switch. Hides how one of several writers wins, and how a write that
 * arrives twice is known.
 */
import { FIXED_PATH, type PostgresNames } from './names.ts';

export function createSwitchFunctions({ switches, readSwitch, swapSwitch }: PostgresNames): string {
  return `
CREATE OR REPLACE FUNCTION ${readSwitch}(wanted text) RETURNS json
LANGUAGE plpgsql ${FIXED_PATH} AS $$
BEGIN
  RETURN (
    SELECT json_build_object('value', value::text, 'revision', revision)
      FROM ${switches} WHERE workflow_type = wanted
  );
END
$$;
COMMENT ON FUNCTION ${readSwitch} IS 'The switch of a workflow; NULL where there is none.';

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
  RETURN FOUND OR EXISTS (
    SELECT FROM ${switches} WHERE workflow_type = asked.workflow AND revision = asked.revision
  );
END
$$;
COMMENT ON FUNCTION ${swapSwitch} IS
  'Replaces the switch of a workflow that has the expected revision, or makes it where none is '
  'expected. True also where this very write was done before.';
`;
}
