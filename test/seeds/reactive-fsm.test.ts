import { describe, expect, it } from 'vitest';
import {
  currentStep,
  type FsmSnapshot,
  StateMachineGate,
  type StepSource,
} from '../../src/index.ts';
import { RawSession } from '../helpers/raw.ts';
import { type SceneOptions, scene } from '../helpers/scene.ts';
import { toolServer } from '../helpers/tool-server.ts';

/** A client of tools behind a gate. */
async function open(
  workflow: StateMachineGate<string, string>,
  makeServer: ReturnType<typeof toolServer>,
  options: SceneOptions = {},
) {
  const app = await scene({ workflow, makeServer, shape: { mode: 'stateless' }, ...options });
  const client = await app.client();
  return { ...app, client, key: client.run };
}

describe('tools by state: states, tools, allowedTools and transitionTo', () => {
  const TOOLS = ['check_service', 'check_availability', 'confirm', 'invoice'];
  const triage = () =>
    new StateMachineGate({
      initial: 'TRIAGE',
      states: {
        TRIAGE: { on: { BOOK: 'BOOKING' } },
        BOOKING: { on: { FINISH: 'DONE' } },
        DONE: {},
      },
    })
      .bindTool('check_service', 'TRIAGE')
      .bindTool('check_availability', 'TRIAGE')
      .bindTool('confirm', 'BOOKING')
      .bindTool('invoice', 'BOOKING');

  it('are what the list of a client shows, before and after a transition', async () => {
    const { client, key, runs, ledger } = await open(triage(), toolServer(TOOLS));
    await client.sees(['check_service', 'check_availability']);
    await client.isRefused('confirm', 'state');
    expect(ledger.calls).toEqual([]);

    await runs.send(key, 'BOOK');
    await client.sees(['confirm', 'invoice']);
    await client.isRefused('check_service', 'state');
    expect((await client.calls('confirm')).text).toBe('confirm done');

    await runs.send(key, 'FINISH');
    await client.sees([]);
  });

  it('move on when a tool has found out who the user is', async () => {
    const gate = triage().bindTool('verify_identity', 'TRIAGE', {
      success: ({ result }) => (result.structuredContent?.verified === true ? 'BOOK' : undefined),
    });
    const verify = ({ code }: Record<string, unknown>) => ({ verified: code === '1234' });
    const server = toolServer([...TOOLS, 'verify_identity'], { verify_identity: verify });
    const { client } = await open(gate, server);
    await client.calls('verify_identity', { code: '0000' });
    await client.sees(['check_service', 'check_availability', 'verify_identity']);
    await client.calls('verify_identity', { code: '1234' });
    await client.sees(['confirm', 'invoice']);
  });

  it('are the same without a server', async () => {
    const gate = triage();
    expect(gate.getVisibleToolNames(TOOLS)).toEqual(['check_service', 'check_availability']);
    await gate.transition('BOOK');
    expect(gate.currentState).toBe('BOOKING');
    expect(gate.getVisibleToolNames(TOOLS)).toEqual(['confirm', 'invoice']);
  });
});

describe('guards that ask the database: guard, context and transitionToAsync', () => {
  const TOOLS = ['choose_slot', 'reserve_slot', 'send_confirmation'];

  /** The guard reads what tools, and the app, wrote into the run's shared data. */
  function booking() {
    const taken = new Set<unknown>();
    const isAvailable = async (slot: unknown) => !taken.has(slot);
    const gate = new StateMachineGate({
      initial: 'BOOKING',
      states: {
        BOOKING: { on: { CONFIRM: 'CONFIRMED', GIVE_UP: 'UNAVAILABLE' } },
        CONFIRMED: {},
        UNAVAILABLE: {},
      },
    })
      .bindTool('choose_slot', 'BOOKING', { success: () => undefined })
      .bindTool('reserve_slot', 'BOOKING', {
        guard: ({ context }) => isAvailable((context as { slotId: string }).slotId),
        success: 'CONFIRM',
      })
      .bindTool('send_confirmation', 'CONFIRMED');
    const chooses = ({ slot }: Record<string, unknown>, _meta: unknown, extra: StepSource) => {
      currentStep(extra)?.update(() => ({ slotId: String(slot) }));
      return undefined;
    };
    return { gate, taken, isAvailable, server: toolServer(TOOLS, { choose_slot: chooses }) };
  }

  it('let the call through while the slot is free, and the run moves', async () => {
    const { gate, server } = booking();
    const { client, key, runs } = await open(gate, server);
    await runs.update(key, () => ({ slotId: 'slot-42' }));
    expect((await client.calls('reserve_slot')).text).toBe('reserve_slot done');
    await client.sees(['send_confirmation']);
  });

  it('refuse it where the slot was taken between the decision and the attempt', async () => {
    const { gate, server, taken } = booking();
    const { client, ledger } = await open(gate, server);
    await client.calls('choose_slot', { slot: 'slot-42' });
    taken.add('slot-42');
    const refused = await client.isRefused('reserve_slot', 'guard');
    expect(refused.meta['mcp-interlock/refusal']).toMatchObject({ state: 'BOOKING' });
    expect(ledger.calls).toEqual(['choose_slot']);

    await client.calls('choose_slot', { slot: 'slot-43' });
    await client.calls('reserve_slot');
  });

  it('are asked by the app itself in front of a move of its own', async () => {
    const { gate, server, taken, isAvailable } = booking();
    const { client, key, runs, run } = await open(gate, server);
    await client.calls('choose_slot', { slot: 'slot-42' });
    taken.add('slot-42');
    const context = (await runs.read(key))?.context as { slotId: string } | undefined;
    const isFree = await isAvailable(context?.slotId);
    await runs.send(key, isFree ? 'CONFIRM' : 'GIVE_UP');
    await run(key).isIn('UNAVAILABLE');
    await client.sees([]);
  });
});

describe('a snapshot between two requests: snapshot and restore', () => {
  const scheduling = () =>
    new StateMachineGate({
      initial: 'TRIAGE',
      states: { TRIAGE: { on: { SCHEDULE: 'SCHEDULING' } }, SCHEDULING: {} },
    })
      .bindTool('begin', 'TRIAGE', 'SCHEDULE')
      .bindTool('propose_time', 'SCHEDULING');
  const server = toolServer(['begin', 'propose_time']);

  /** `db.save` and `db.load`, as JSON. */
  function database() {
    const rows = new Map<string, string>();
    return {
      rows,
      load: async (key: string): Promise<FsmSnapshot | undefined> =>
        JSON.parse(rows.get(key) ?? 'null') ?? undefined,
      save: async (key: string, snapshot: FsmSnapshot) =>
        void rows.set(key, JSON.stringify(snapshot)),
    };
  }

  it('lets another instance, with a gate of its own, go on in the same session', async () => {
    const db = database();
    const first = await open(scheduling(), server, { session: { store: db } });
    await first.client.calls('begin');
    await first.client.raw.close();
    expect([...db.rows.values()].map((row) => JSON.parse(row).state)).toContain('SCHEDULING');

    const second = await open(scheduling(), server, { session: { store: db } });
    const session = RawSession.resume(second.url, first.key);
    expect(await session.tools()).toEqual(['propose_time']);
    await second.run(first.key).isIn('SCHEDULING');
  });

  it('is as good without a server', async () => {
    const before = scheduling();
    await before.transition('SCHEDULE');
    const saved = JSON.parse(JSON.stringify(before.snapshot()));
    expect(saved).toMatchObject({ state: 'SCHEDULING' });
    const after = scheduling();
    after.restore(saved);
    expect(after.currentState).toBe('SCHEDULING');
    expect(() => after.restore({ ...saved, state: 'SHCEDULING' })).toThrow('SCHEDULING');
  });
});
