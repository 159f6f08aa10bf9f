import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { describe, expect, it, onTestFinished } from 'vitest';
import {
  currentStep,
  type FsmSnapshot,
  fsmGate,
  runsOf,
  StateMachineGate,
  type StateStore,
  sessionStore,
} from '../../src/index.ts';
import { connect } from '../helpers/client.ts';
import { toolServer } from '../helpers/tool-server.ts';
import { startUpstream } from '../helpers/upstream.ts';

/** Serves tools behind a gate, and connects the SDK's client to them. */
async function serve<S extends string, E extends string>(
  gate: StateMachineGate<S, E>,
  makeServer: ReturnType<typeof toolServer>,
  store?: StateStore,
) {
  const sessions = sessionStore({ store, onWarning: () => {} });
  const upstream = await startUpstream({
    shape: { mode: 'stateless' },
    middlewares: [sessions, fsmGate(gate)],
    makeServer,
  });
  onTestFinished(upstream.close);
  const client = await connect(upstream.url);
  onTestFinished(() => client.close());
  const run = String(client.transport.sessionId);
  return {
    client,
    run,
    runs: runsOf(gate, { sessions }),
    ledger: upstream.ledger,
    url: upstream.url,
  };
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
    const { client, run, runs, ledger } = await serve(triage(), toolServer(TOOLS));
    expect(await client.tools()).toEqual(['check_service', 'check_availability']);
    expect((await client.call('confirm')).isError).toBe(true);
    expect(ledger.calls).toEqual([]);

    await runs.send(run, 'BOOK');
    expect(await client.tools()).toEqual(['confirm', 'invoice']);
    expect((await client.call('check_service')).isError).toBe(true);
    expect((await client.call('confirm')).text).toBe('confirm done');

    await runs.send(run, 'FINISH');
    expect(await client.tools()).toEqual([]);
  });

  it('move on when a tool has found out who the user is', async () => {
    const gate = triage().bindTool('verify_identity', 'TRIAGE', {
      success: ({ result }) => (result.structuredContent?.verified === true ? 'BOOK' : undefined),
    });
    const verify = ({ code }: Record<string, unknown>) => ({ verified: code === '1234' });
    const server = toolServer([...TOOLS, 'verify_identity'], { verify_identity: verify });
    const { client } = await serve(gate, server);
    await client.call('verify_identity', { code: '0000' });
    expect(await client.tools()).toEqual([
      'check_service',
      'check_availability',
      'verify_identity',
    ]);
    await client.call('verify_identity', { code: '1234' });
    expect(await client.tools()).toEqual(['confirm', 'invoice']);
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
    const chooses = ({ slot }: Record<string, unknown>) => {
      currentStep()?.update(() => ({ slotId: String(slot) }));
      return undefined;
    };
    return { gate, taken, isAvailable, server: toolServer(TOOLS, { choose_slot: chooses }) };
  }

  it('let the call through while the slot is free, and the run moves', async () => {
    const { gate, server } = booking();
    const { client, run, runs } = await serve(gate, server);
    await runs.update(run, () => ({ slotId: 'slot-42' }));
    expect((await client.call('reserve_slot')).text).toBe('reserve_slot done');
    expect(await client.tools()).toEqual(['send_confirmation']);
  });

  it('refuse it where the slot was taken between the decision and the attempt', async () => {
    const { gate, server, taken } = booking();
    const { client, ledger } = await serve(gate, server);
    await client.call('choose_slot', { slot: 'slot-42' });
    taken.add('slot-42');
    const refused = await client.call('reserve_slot');
    expect(refused.meta['mcp-interlock/refusal']).toMatchObject({
      reason: 'guard',
      state: 'BOOKING',
    });
    expect(ledger.calls).toEqual(['choose_slot']);

    await client.call('choose_slot', { slot: 'slot-43' });
    expect((await client.call('reserve_slot')).isError).toBe(false);
  });

  it('are asked by the app itself in front of a move of its own', async () => {
    const { gate, server, taken, isAvailable } = booking();
    const { client, run, runs } = await serve(gate, server);
    await client.call('choose_slot', { slot: 'slot-42' });
    taken.add('slot-42');
    const context = (await runs.read(run))?.context as { slotId: string } | undefined;
    const isFree = await isAvailable(context?.slotId);
    await runs.send(run, isFree ? 'CONFIRM' : 'GIVE_UP');
    expect((await runs.read(run))?.snapshot.state).toBe('UNAVAILABLE');
    expect(await client.tools()).toEqual([]);
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
    const first = await serve(scheduling(), server, db);
    await first.client.call('begin');
    await first.client.close();
    expect([...db.rows.values()].map((row) => JSON.parse(row).state)).toContain('SCHEDULING');

    const second = await serve(scheduling(), server, db);
    const client = new Client({ name: 'test', version: '1.0.0' });
    const transport = new StreamableHTTPClientTransport(second.url, { sessionId: first.run });
    await client.connect(transport as never);
    onTestFinished(() => client.close());
    expect((await client.listTools()).tools.map(({ name }) => name)).toEqual(['propose_time']);
    expect((await second.runs.read(first.run))?.snapshot.state).toBe('SCHEDULING');
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
