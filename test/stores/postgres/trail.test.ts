import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { claimed, claimOf, commitOf, step } from '../../../packages/testing/src/fixtures.ts';
import { postgresStore } from '../../../src/stores/postgres.ts';
import type { CallNote, Json, TrailEntry } from '../../../src/stores/store.ts';
import { verifyTrail } from '../../../src/stores/trail.ts';
import { few } from '../../helpers/few.ts';
import { makePostgresSchema } from '../../helpers/postgres-schema.ts';

const database = await makePostgresSchema();
afterAll(() => database.drop());
const { schema } = database;
const pool = database.connect();
const chained = postgresStore({ pool, schema, chainTrail: true });
const plain = postgresStore({ pool, schema });
await chained.migrate();

/** Texts and values that JSON, a database and an escape may each write otherwise. */
const awkward = fc.constantFrom(
  ...['\\', '"', '/', '\0', '\n', '\r', '\t', '\b', '\f', '\u0001', '\u001f', '\u007f', '\u2028'],
  ...['\ud83d', '\ude00', '😀', 'ä', '\\u0000', '\\\\', '{', "'", '$$', 'a'],
);
const text = fc.oneof(
  fc.string({ unit: awkward, maxLength: 12 }),
  fc.string({ unit: fc.nat(0xffff).map((code) => String.fromCharCode(code)), maxLength: 12 }),
);
const json = fc.jsonValue({ stringUnit: 'binary' }) as fc.Arbitrary<Json>;
const note: fc.Arbitrary<CallNote> = fc.record(
  {
    tool: text,
    digest: text,
    args: json,
    actor: text,
    requestId: fc.oneof(text, fc.integer(), fc.double({ noNaN: true, noDefaultInfinity: true })),
    workflowVersion: fc.nat(),
  },
  { requiredKeys: [] },
);

describe('the chained trail of postgresStore()', { timeout: 60_000 }, () => {
  it('has the hashes that verifyTrail() makes, of any text and any JSON', async () => {
    const anything = fc.record({
      from: text,
      to: text,
      event: text,
      kind: text,
      note: text,
      call: note,
      payload: json,
      errors: fc.array(json),
    });
    await fc.assert(
      fc.asyncProperty(anything, async ({ from, to, event, kind, call, payload, ...said }) => {
        const run = randomUUID();
        const key = { run, workflow: 'checkout' };
        const initial = { state: from, updatedAt: 0 };
        const retried = { step: { uncertain: 'retry' }, initial, leaseMs: 0, entry: call } as const;
        await claimed(chained, claimOf(run, { ...retried, create: {} }));
        // The store itself writes the attempt of the claim that is taken over.
        const second = claimOf(run, { initial });
        await claimed(chained, second);
        const failed = { from, event: null, outcome: 'failed', kind, ...call, ...said } as const;
        await chained.release(second, second.token, { entry: failed });
        await chained.append(key, { ...failed, outcome: 'refused' });
        const third = claimOf(run);
        await claimed(chained, third);
        const trail = { from, to, event, outcome: 'succeeded', ...call, payload, ...said } as const;
        await chained.commit(commitOf(third, { snapshot: { state: to }, trail }));

        const entries = await chained.history(key);
        expect(entries.map(({ seq, version, attempt }) => [seq, version, attempt])).toEqual([
          [1, 0, 1],
          [2, 0, 2],
          [3, 0, 2],
          [4, 1, 3],
        ]);
        expect(verifyTrail(entries, { from: key })).toEqual([]);
        const [takenOver] = entries;
        expect(takenOver).toMatchObject({
          from,
          event: null,
          outcome: 'unknown',
          kind: 'taken_over',
        });
      }),
      few(40),
    );
  });

  it('goes on after a process without chainTrail has written to it', async () => {
    const run = randomUUID();
    await step(chained, run, { create: {} });
    await step(plain, run);
    await step(chained, run);
    const from = { run, workflow: 'checkout' };
    expect(verifyTrail(await plain.history(from), { from })).toEqual([]);
  });

  it('shows an entry that was changed, removed or moved in the table', async () => {
    const run = randomUUID();
    for (let index = 0; index < 4; index += 1) await step(chained, run, { create: {} });
    const from = { run, workflow: 'checkout' };
    const faults = async () =>
      verifyTrail(await chained.history(from), { from }).map(({ seq, fault }) => `${seq} ${fault}`);
    const change = (sql: string) => pool.query(`${sql} WHERE run = $1 AND seq = 3`, [run]);
    await change(`UPDATE ${schema}.workflow_events
      SET entry = jsonb_set(entry::jsonb, '{actor}', '"mallory"')::json`);
    expect(await faults()).toEqual(['3 altered']);
    await change(`DELETE FROM ${schema}.workflow_events`);
    expect(await faults()).toEqual(['4 missing']);
  });

  it('has no hashes unless it is asked for', async () => {
    const run = randomUUID();
    await step(plain, run, { create: {} });
    expect(await plain.history({ run, workflow: 'checkout' })).toEqual([
      expect.not.objectContaining({ hash: expect.anything() }),
    ]);
  });
});

describe('the tokens of postgresStore()', () => {
  it('stay spent through many later attempts and refusals', async () => {
    const run = randomUUID();
    const first = claimOf(run, { create: {} });
    await claimed(plain, first);
    await plain.commit(commitOf(first));
    const refused = { from: 'has_items', event: null, outcome: 'refused' } as const;
    for (let index = 0; index < 40; index += 1)
      await plain.append({ run, workflow: 'checkout' }, refused);
    expect(await plain.claim(first)).toMatchObject({ status: 'state' });
    expect(await plain.commit(commitOf(first))).toMatchObject({ version: 1, repeated: true });
  });

  it('are remembered after the trail was cut', async () => {
    const run = randomUUID();
    const first = claimOf(run, { create: {} });
    await claimed(plain, first);
    await plain.commit(commitOf(first));
    await pool.query(`DELETE FROM ${schema}.workflow_events WHERE run = $1`, [run]);
    expect(await plain.claim(first)).toMatchObject({ status: 'state' });
    expect(await plain.commit(commitOf(first))).toMatchObject({ version: 1, repeated: true });
  });
});

describe('the documented way to keep the trail for a time', () => {
  it('removes older entries, and leaves a whole chain of the others', async () => {
    const [index, remove] = await documentedStatements();
    const run = randomUUID();
    for (let each = 0; each < 6; each += 1) await step(chained, run, { create: {} });
    // The third entry is newer than the fourth: the clock went back.
    const ages = [300, 200, 40, 100, 30, 20];
    for (const [position, days] of ages.entries())
      await pool.query(
        `UPDATE ${schema}.workflow_events SET occurred_at = now() - $1 * interval '1 day'
          WHERE run = $2 AND seq = $3`,
        [days, run, position + 1],
      );
    const other = randomUUID();
    await step(chained, other, { create: {} });
    const client = await pool.connect();
    await client.query(`SET search_path = ${schema}`);
    await client.query(index ?? '');
    await client.query(remove ?? '');
    client.release(true);
    const seqs = (trail: TrailEntry[]) => trail.map(({ seq }) => seq);
    const from = { run, workflow: 'checkout' };
    const kept = await chained.history(from);
    expect(seqs(kept)).toEqual([3, 4, 5, 6]);
    expect(verifyTrail(kept, { from }).filter(({ fault }) => fault === 'missing')).toEqual([]);
    expect(seqs(await chained.history({ run: other, workflow: 'checkout' }))).toEqual([1]);
    // The next entry follows on the last one.
    await step(chained, run);
    expect(seqs(await chained.history({ run, workflow: 'checkout' }))).toEqual([3, 4, 5, 6, 7]);
  });
});

/** The statements in the section about the trail in docs/operate/stores.md. */
async function documentedStatements(): Promise<string[]> {
  const page = await readFile(new URL('../../../docs/operate/stores.md', import.meta.url), 'utf8');
  const section = page.slice(page.indexOf('### How long the trail is kept'));
  const blocks = [...section.matchAll(/```sql\n(.*?)```/gs)].slice(0, 1);
  return blocks.flatMap(([, sql = '']) => sql.split(/;\n+/).filter((each) => each.trim() !== ''));
}
