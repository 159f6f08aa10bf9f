import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { apiReports } from '../scripts/api-report.ts';
import { INTERNAL, LIBRARIES } from '../scripts/entries.ts';
import { ROOT } from './helpers/consumer.ts';

const reports = apiReports();

describe('the public surface', () => {
  it('has a report in api/ for each entry of the packages, and no other', () => {
    const checkedIn = readdirSync(join(ROOT, 'api'), { recursive: true, encoding: 'utf8' })
      .filter((path) => path.endsWith('.d.ts'))
      .map((path) => `api/${path}`);
    expect(checkedIn.sort()).toEqual([...reports.keys()].sort());
    const ours = LIBRARIES.flatMap(({ entries }) => entries)
      .filter(({ specifier }) => specifier !== INTERNAL)
      .map(({ specifier }) => `api/${specifier}.d.ts`);
    const companions = ['api/mcp-interlock-cli/proxy.d.ts', 'api/mcp-interlock-inspector.d.ts'];
    expect(checkedIn.sort()).toEqual([...ours, ...companions].sort());
  });

  it.each([...reports])('is that of its report, or the change is meant: %s', (path, text) => {
    const file = join(ROOT, path);
    const checkedIn = existsSync(file) ? readFileSync(file, 'utf8') : '';
    const renew =
      'the public surface changed: if that is meant, renew the report with `npm run api`';
    expect(text, renew).toBe(checkedIn);
  });

  it('is reported with each type that an export names, and without comments', () => {
    const root = reports.get('api/mcp-interlock.d.ts') ?? '';
    expect(root).toContain('export interface StateMachineGate<');
    expect(root).toMatch(/\n\/\/ Named by the above, and exported by no entry:\n/);
    expect([...reports.values()].join('')).not.toContain('/**');
  });
});
