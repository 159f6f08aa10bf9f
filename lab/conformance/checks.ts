import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod';

export const STATUSES = ['SUCCESS', 'FAILURE', 'WARNING', 'SKIPPED', 'INFO'] as const;
export type Status = (typeof STATUSES)[number];

/** One thing that the suite looked at. A scenario may look at the same thing several times. */
export interface Check {
  readonly scenario: string;
  readonly id: string;
  readonly status: Status;
}

const checksSchema = z.array(z.object({ id: z.string(), status: z.enum(STATUSES) }));

/**
 * The checks of a `checks.json`.
 *
 * @throws Error naming the scenario, where the text is anything else.
 */
export function parseChecks(scenario: string, text: string): Check[] {
  try {
    return checksSchema.parse(JSON.parse(text)).map(({ id, status }) => ({ scenario, id, status }));
  } catch (cause) {
    throw new Error(`the checks of ${scenario} cannot be read`, { cause });
  }
}

/**
 * The scenario whose results are in a folder of the suite's, such as
 * `server-tools-list-2026-08-22T02-34-08-352Z`.
 */
export function scenarioOf(folder: string): string | undefined {
  return /^server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z$/.exec(folder)?.[1];
}

/** What the suite wrote into a folder, which need not exist. */
export function readChecks(folder: string): Check[] {
  if (!existsSync(folder)) return [];
  return readdirSync(folder).flatMap((name) => {
    const scenario = scenarioOf(name);
    const file = join(folder, name, 'checks.json');
    return scenario === undefined || !existsSync(file)
      ? []
      : parseChecks(scenario, readFileSync(file, 'utf8'));
  });
}
