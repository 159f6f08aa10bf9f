import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { memoryStore } from 'mcp-interlock';
import { describe, expect, it, onTestFinished } from 'vitest';
import { bookingApp } from '../../examples/booking/app.ts';
import { Slots } from '../../examples/booking/slots.ts';
import { connect, type TestClient } from '../helpers/client.ts';
import { latch } from '../helpers/latch.ts';
import { ADDRESS, startProgram } from '../helpers/program.ts';
import { freePort } from '../services/ports.ts';

const SERVER = fileURLToPath(new URL('../../examples/booking/server.ts', import.meta.url));

const ANN = { patient: 'ann', code: '1234' };
const BOB = { patient: 'bob', code: '5678' };

async function serve(slots: Slots): Promise<URL> {
  const server = bookingApp(slots, memoryStore()).listen(0, '127.0.0.1');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  await once(server, 'listening');
  return new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`);
}

async function enter(url: URL): Promise<TestClient> {
  const client = await connect(url);
  onTestFinished(() => client.close());
  return client;
}

/** A client that has come as far as choosing a slot. */
async function choose(url: URL, patient: typeof ANN, slot: string): Promise<TestClient> {
  const client = await enter(url);
  await client.call('verify_identity', patient);
  await client.call('choose_slot', { slot });
  return client;
}

const reasonOf = ({ meta }: { meta: Record<string, unknown> }): unknown =>
  (meta['mcp-interlock/refusal'] as { reason: string } | undefined)?.reason;

describe('the booking', () => {
  it('shows each tool when it is its turn, and never confirms before the patient is known', async () => {
    const client = await enter(await serve(new Slots(':memory:')));
    const shown = [await client.tools()];
    expect(reasonOf(await client.call('confirm_booking'))).toBe('state');
    for (const [tool, args] of [
      ['verify_identity', ANN],
      ['choose_slot', { slot: 'monday-9' }],
      ['confirm_booking', {}],
    ] as const) {
      expect((await client.call(tool, args)).isError).toBe(false);
      shown.push(await client.tools());
    }
    expect(shown).toEqual([
      ['list_slots', 'verify_identity'],
      ['list_slots', 'choose_slot'],
      ['list_slots', 'choose_slot', 'confirm_booking'],
      ['list_slots', 'send_confirmation'],
    ]);
    expect((await client.call('send_confirmation')).text).toBe('The letter is on its way.');
    expect((await client.call('list_slots')).text).toBe('monday-10, tuesday-9');
  });

  it('goes no further where the result says that the code was wrong', async () => {
    const client = await enter(await serve(new Slots(':memory:')));
    expect(await client.call('verify_identity', { ...ANN, code: '0000' })).toMatchObject({
      isError: false,
      text: expect.stringContaining('Wrong code.'),
    });
    expect(await client.tools()).toEqual(['list_slots', 'verify_identity']);
  });

  it('is refused in words while the slot is taken, and goes on with another one', async () => {
    const slots = new Slots(':memory:');
    const url = await serve(slots);
    const [ann, bob] = [await choose(url, ANN, 'monday-9'), await choose(url, BOB, 'monday-9')];
    await ann.call('confirm_booking');

    const refused = await bob.call('confirm_booking');
    expect([refused.isError, reasonOf(refused)]).toEqual([true, 'guard']);
    expect(refused.text).toBe(
      '[System: This call of confirm_booking was refused while booking is in "chosen": monday-9 is taken. Call list_slots, then choose_slot. ' +
        'Available now: choose_slot, confirm_booking.]',
    );
    expect(await slots.takenBy('bob')).toEqual([]);

    await bob.call('choose_slot', { slot: 'tuesday-9' });
    expect((await bob.call('confirm_booking')).text).toBe('tuesday-9 is booked for bob.');
    expect(await slots.takenBy('ann')).toEqual(['monday-9']);
  });
});

describe('two clients that want one slot at the same time', () => {
  it('never both get it', async () => {
    const slots = new Slots(':memory:');
    const url = await serve(slots);
    const clients = await Promise.all([choose(url, ANN, 'monday-9'), choose(url, BOB, 'monday-9')]);
    const answers = await Promise.all(clients.map((client) => client.call('confirm_booking')));
    expect(answers.filter(({ text }) => text.startsWith('monday-9 is booked'))).toHaveLength(1);
    expect([...(await slots.takenBy('ann')), ...(await slots.takenBy('bob'))]).toEqual([
      'monday-9',
    ]);
  });

  it('part where both were let through: the slower one is told, and is back at choosing', async () => {
    const slots = new SlotsAskedTogether(':memory:');
    const url = await serve(slots);
    const clients = await Promise.all([choose(url, ANN, 'monday-9'), choose(url, BOB, 'monday-9')]);
    const answers = await Promise.all(clients.map((client) => client.call('confirm_booking')));
    expect(answers.map(({ isError }) => isError)).toEqual([false, false]);
    const slower = answers.findIndex(({ text }) =>
      text.includes('monday-9 was taken a moment ago.'),
    );
    expect(await clients[1 - slower]?.tools()).toEqual(['list_slots', 'send_confirmation']);
    expect(await clients[slower]?.tools()).toEqual(['list_slots', 'choose_slot']);
    await clients[slower]?.call('choose_slot', { slot: 'monday-10' });
    expect((await clients[slower]?.call('confirm_booking'))?.text).toContain('monday-10 is booked');
  });
});

/**
 * Answers the first question only when the second was asked, so that both askers believe the slot
 * is free.
 */
class SlotsAskedTogether extends Slots {
  readonly #second = latch();
  #asked = 0;

  override async isFree(slot: string): Promise<boolean> {
    const isFree = await super.isFree(slot);
    this.#asked += 1;
    if (this.#asked === 2) this.#second.open();
    await this.#second.opened;
    return isFree;
  }
}

describe('the server of the example', () => {
  it('goes on where a run was, with the slot that was chosen, after it was killed', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'interlock-booking-'));
    onTestFinished(() => rm(folder, { recursive: true }));
    const env = {
      SLOTS_DB: join(folder, 'slots.db'),
      RUNS_DB: join(folder, 'runs.db'),
      PORT: String(await freePort()),
    };
    const start = async () => {
      const program = await startProgram(SERVER, { env, ready: ADDRESS });
      onTestFinished(program.kill9);
      return program;
    };
    const first = await start();
    const client = await choose(new URL(first.match), ANN, 'tuesday-9');
    await first.kill9();
    await start();
    expect(await client.tools()).toEqual(['list_slots', 'choose_slot', 'confirm_booking']);
    expect((await client.call('confirm_booking')).text).toBe('tuesday-9 is booked for ann.');
  }, 60_000);
});
