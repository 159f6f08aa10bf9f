import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as fc from 'fast-check';
import { describe, expect, it, onTestFinished } from 'vitest';
import {
  type Check,
  parseChecks,
  readChecks,
  STATUSES,
  type Status,
  scenarioOf,
} from '../../lab/conformance/checks.ts';
import {
  byColumn,
  type ColumnResult,
  differencesOf,
  faultsOf,
  type Results,
} from '../../lab/conformance/comparison.ts';
import { ExampleServer, mountFaults } from '../../lab/conformance/example-server.ts';
import { SERVERS, type TestSet } from '../../lab/conformance/plan.ts';
import { areEqual, describeSet, summaryOf } from '../../lab/conformance/report.ts';
import { COLUMNS } from '../../lab/conformance/servers/mounts.ts';
import { runToEnd } from '../helpers/program.ts';

const SET: TestSet = {
  server: 'SDK v1',
  requirements: '2025-11-25',
  least: { checks: 2, passed: 1 },
};

const check = (scenario: string, id: string, status: Status): Check => ({ scenario, id, status });
const PASSED = [check('ping', 'answers', 'SUCCESS'), check('ping', 'schema', 'SUCCESS')];
const column = (checks: readonly Check[], faults: readonly string[] = []): ColumnResult => ({
  checks,
  faults,
});

function resultsOf(changes: Partial<Results> = {}): Results {
  return { ...byColumn(() => column(PASSED)), ...changes };
}

describe('the checks that the suite wrote', () => {
  it('are read with their scenario, and without what differs from run to run', () => {
    const written = {
      id: 'answers',
      name: 'Ping',
      status: 'SUCCESS',
      timestamp: '2026-08-22T02:34:22.186Z',
    };
    expect(parseChecks('ping', JSON.stringify([written]))).toEqual([
      check('ping', 'answers', 'SUCCESS'),
    ]);
  });

  it.each(['', '{}', '[{"id":"answers"}]', '[{"id":"answers","status":"MAYBE"}]'])(
    'are refused as %j, with the scenario in the message',
    (text) => expect(() => parseChecks('ping', text)).toThrow('the checks of ping'),
  );

  it('are found in the folders that are named after a scenario and a time, and nowhere else', () => {
    expect(scenarioOf('server-tools-list-2026-08-22T02-34-08-352Z')).toBe('tools-list');
    expect(scenarioOf('server-json-schema-2020-12-2026-08-22T02-34-08-352Z')).toBe(
      'json-schema-2020-12',
    );
    expect(scenarioOf('client-tools-list-2026-08-22T02-34-08-352Z')).toBeUndefined();

    const folder = mkdtempSync(join(tmpdir(), 'interlock-checks-'));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    for (const name of ['server-ping-2026-08-22T02-34-08-352Z', 'elsewhere']) {
      mkdirSync(join(folder, name));
      writeFileSync(join(folder, name, 'checks.json'), '[{"id":"answers","status":"SUCCESS"}]');
    }
    expect(readChecks(folder)).toEqual([check('ping', 'answers', 'SUCCESS')]);
  });

  it('are none where the suite wrote nothing', () => {
    expect(readChecks(join(tmpdir(), 'interlock-that-is-not-there'))).toEqual([]);
  });
});

describe('the comparison of the columns', () => {
  const checks = fc.array(
    fc.record({
      scenario: fc.constantFrom('ping', 'caching'),
      id: fc.constantFrom('answers', 'schema', '__proto__'),
      status: fc.constantFrom(...STATUSES),
    }),
    { minLength: 1 },
  );

  it('finds none between the same checks in another order', () => {
    const shuffled = checks.chain((all) =>
      fc.tuple(fc.constant(all), fc.shuffledSubarray(all, { minLength: all.length })),
    );
    fc.assert(
      fc.property(shuffled, ([all, same]) => {
        const results = resultsOf({ ...byColumn(() => column(all)), empty: column(same) });
        expect(differencesOf(results)).toEqual([]);
      }),
    );
  });

  it('finds one check that is missing, one too many or of another status, in whichever column', () => {
    const other = (status: Status) => (status === 'FAILURE' ? 'SUCCESS' : 'FAILURE');
    const change = fc.constantFrom(
      () => [],
      (all: Check) => [all, all],
      (all: Check) => [{ ...all, status: other(all.status) }],
    );
    fc.assert(
      fc.property(
        checks,
        fc.nat(),
        fc.constantFrom(...COLUMNS),
        change,
        (all, seed, where, changed) => {
          const at = seed % all.length;
          const unlike = all.flatMap((each, index) => (index === at ? changed(each) : [each]));
          const results = { ...byColumn(() => column(all)), [where]: column(unlike) };
          const { scenario, id } = all[at] as Check;
          expect(differencesOf(results)).toMatchObject([{ scenario, id }]);
        },
      ),
    );
  });

  it('names what a check came to in each column', () => {
    const failed = [check('ping', 'answers', 'FAILURE')];
    expect(differencesOf(resultsOf({ idle: column(failed) }))).toEqual([
      {
        scenario: 'ping',
        id: 'answers',
        statuses: { ...byColumn(() => ['SUCCESS']), idle: ['FAILURE'] },
      },
      {
        scenario: 'ping',
        id: 'schema',
        statuses: { ...byColumn(() => ['SUCCESS']), idle: [] },
      },
    ]);
  });
});

describe('equal columns are no proof', () => {
  it('where they have no checks, or fewer than are known', () => {
    const nothing = byColumn(() => column([]));
    expect(differencesOf(nothing)).toEqual([]);
    expect(faultsOf(SET, nothing)).toEqual(
      COLUMNS.map((name) => `SDK v1, 2025-11-25, ${name}: 0 checks, expected at least 2`),
    );
    expect(areEqual([{ set: SET, results: nothing }])).toBe(false);
    expect(
      faultsOf(
        SET,
        byColumn(() => column(PASSED.slice(1))),
      ),
    ).toHaveLength(COLUMNS.length);
  });

  it('where the server fails what it is known to pass', () => {
    const failed = PASSED.map((each) => ({ ...each, status: 'FAILURE' as const }));
    const fault = 'SDK v1, 2025-11-25, bare: 0 passed, expected at least 1';
    expect(
      faultsOf(
        SET,
        byColumn(() => column(failed)),
      ),
    ).toEqual([fault]);
  });

  it('where a server did not come up, or was not what its column says', () => {
    const results = resultsOf({ idle: column(PASSED, ['never_called is shown']) });
    expect(faultsOf(SET, results)).toEqual(['SDK v1, 2025-11-25, idle: never_called is shown']);
    expect(areEqual([{ set: SET, results }])).toBe(false);
  });

  it('where nothing was run', () => {
    expect(areEqual([])).toBe(false);
    expect(summaryOf([])).toMatch(/^NOT SHOWN EQUAL/);
  });
});

describe('the report', () => {
  it('shows the columns side by side and says that they are equal', () => {
    const result = { set: SET, results: resultsOf() };
    expect(describeSet(result).split('\n')).toEqual([
      'SDK v1, 2025-11-25',
      '  scenario  bare      empty     idle      observed',
      '  ping      2 passed  2 passed  2 passed  2 passed',
      '  total     2 passed  2 passed  2 passed  2 passed',
    ]);
    expect(areEqual([result])).toBe(true);
    expect(summaryOf([result])).toBe(
      'EQUAL in all columns. SDK v1, 2025-11-25: equal, 2/2/2/2 of 2 passed',
    );
  });

  it('marks a scenario that differs, and says in which check', () => {
    const failed = [check('ping', 'answers', 'FAILURE'), check('ping', 'schema', 'SUCCESS')];
    const result = { set: SET, results: resultsOf({ empty: column(failed) }) };
    const lines = describeSet(result).split('\n');
    expect(lines[2]).toBe('≠  ping      2 passed  1 passed, 1 failed  2 passed  2 passed');
    expect(lines.at(-1)).toBe(
      'DIFFERS ping answers: bare SUCCESS, empty FAILURE, idle SUCCESS, observed SUCCESS',
    );
    expect(summaryOf([result])).toMatch(
      /^NOT SHOWN EQUAL: 1 checks differ, 0 faults\. .*2\/1\/2\/2 passed$/,
    );
    expect(areEqual([result])).toBe(false);
  });
});

describe('an example server', () => {
  const each = SERVERS.flatMap((server) => COLUMNS.map((name) => [server, name] as const));

  it.each(each)('of %s is what the column "%s" says', async (server, name) => {
    const running = await ExampleServer.start(server, name, new AbortController().signal);
    onTestFinished(() => running.stop());
    expect(mountFaults(name, await running.evidence())).toEqual([]);
  });

  it('is not taken for one with middlewares, nor the other way round', () => {
    const shown = { tools: ['never_called', 'test_simple_text'], storeCalls: 3 };
    expect(mountFaults('empty', shown)).toEqual([]);
    expect(mountFaults('bare', shown)).toEqual(['the middlewares asked their store 3 times']);
    expect(mountFaults('idle', shown)).toEqual(['never_called is shown']);
    expect(mountFaults('bare', { tools: [], storeCalls: 0 })).toEqual([
      'a session is shown no tools',
    ]);
    const bare = { ...shown, storeCalls: 0 };
    expect(mountFaults('empty', bare)).toEqual(['the middlewares asked their store 0 times']);
  });
});

it('ends with status 1 and names the sets where none is meant', async () => {
  const script = fileURLToPath(new URL('../../lab/conformance/conformance.ts', import.meta.url));
  const { status, stderr } = await runToEnd(script, '--only', 'SDK v3');
  expect(status).toBe(1);
  expect(stderr).toContain('SDK v2, 2026-07-28');
});
