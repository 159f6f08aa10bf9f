import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import {
  type FsmConfig,
  fsmGate,
  handleKey,
  memoryStore,
  runsOf,
  StateMachineGate,
  sessionStore,
} from '../../src/index.ts';
import { postgresStore } from '../../src/stores/postgres.ts';
import { connect, type TestClient } from '../helpers/client.ts';
import { makePostgresSchema, type PostgresSchema } from '../helpers/postgres-schema.ts';
import { toolServer } from '../helpers/tool-server.ts';
import { startUpstream } from '../helpers/upstream.ts';

/** Where each event leads from each state. */
const TRANSITIONS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  created: { reserve_inventory: 'inventory_reserved', cancel: 'cancelled' },
  inventory_reserved: { authorize_payment: 'payment_authorized', cancel: 'cancelled' },
  payment_authorized: { capture_payment: 'payment_captured', cancel: 'cancelled' },
  payment_captured: { trigger_fulfillment: 'fulfillment_triggered' },
  fulfillment_triggered: { mark_shipped: 'shipped' },
  shipped: { mark_delivered: 'delivered', refund: 'refunded' },
  delivered: { refund: 'refunded' },
  cancelled: {},
  refunded: {},
};

const STATES = Object.keys(TRANSITIONS);
const EVENTS = [...new Set(Object.values(TRANSITIONS).flatMap((on) => Object.keys(on)))];
const EDGES = STATES.flatMap((from) =>
  Object.entries(TRANSITIONS[from] ?? {}).map(([event, to]) => ({ from, event, to })),
);

const eventsIn = (state: string): string[] => Object.keys(TRANSITIONS[state] ?? {});

/** The shortest way to each state, by events. */
const WAYS = new Map<string, readonly string[]>([['created', []]]);
for (const [state, way] of WAYS) {
  for (const [event, to] of Object.entries(TRANSITIONS[state] ?? {}))
    if (!WAYS.has(to)) WAYS.set(to, [...way, event]);
}

/** The table is the machine, and one tool sends each event. */
function orderGate(table = TRANSITIONS) {
  const states: FsmConfig['states'] = Object.fromEntries(
    Object.entries(table).map(([name, on]) => [name, { on }]),
  );
  const gate = new StateMachineGate({ id: 'order_fulfillment', initial: 'created', states });
  for (const event of EVENTS) {
    gate.bindTool(
      event,
      STATES.filter((state) => eventsIn(state).includes(event)),
      event,
    );
  }
  return gate;
}

describe('each state and each event of the table, by a client', () => {
  async function serve() {
    const gate = orderGate();
    const sessions = sessionStore({ store: memoryStore() });
    const upstream = await startUpstream({
      shape: { mode: 'stateless', answers: 'json' },
      middlewares: [sessions, fsmGate(gate)],
      makeServer: toolServer(['get_order_workflow', ...EVENTS]),
    });
    onTestFinished(upstream.close);
    const runs = runsOf(gate, { sessions });
    const enter = async (state: string): Promise<TestClient> => {
      const client = await connect(upstream.url);
      onTestFinished(() => client.close());
      for (const event of WAYS.get(state) ?? []) await client.call(event);
      return client;
    };
    const stateOf = async (client: TestClient) =>
      (await runs.read(String(client.transport.sessionId)))?.snapshot.state;
    return { enter, stateOf, ledger: upstream.ledger };
  }

  it.each(STATES)(
    '%s: the tools of its events are shown, every other one is refused',
    async (state) => {
      const { enter, stateOf, ledger } = await serve();
      const client = await enter(state);
      expect((await client.tools()).slice(1).sort()).toEqual(eventsIn(state).sort());
      const before = ledger.calls.length;
      for (const event of EVENTS.filter((each) => !eventsIn(state).includes(each))) {
        const { meta } = await client.call(event);
        expect(meta['mcp-interlock/refusal']).toMatchObject({
          reason: 'state',
          state,
          available: expect.toSatisfy(
            (names: string[]) => names.sort().join() === eventsIn(state).sort().join(),
          ),
        });
      }
      expect(ledger.calls.length).toBe(before);
      expect(await stateOf(client)).toBe(state);
    },
  );

  it.each(EDGES)('$from leads by $event to $to', async ({ from, event, to }) => {
    const { enter, stateOf } = await serve();
    const client = await enter(from);
    expect((await client.call(event)).isError).toBe(false);
    expect(await stateOf(client)).toBe(to);
  });
});

describe('a workflow in Postgres that its tools name by workflow_id', () => {
  let database: PostgresSchema;

  beforeAll(async () => {
    database = await makePostgresSchema();
    const pool = database.connect();
    await pool.query(`CREATE SCHEMA ${database.schema}`);
    await postgresStore({ pool, schema: database.schema }).migrate();
  });
  afterAll(() => database?.drop());

  /** An instance of the app: a process would have the same pool, store and gate. */
  async function startInstance(gate = orderGate(), charge: () => string = () => 'succeeded') {
    const key = handleKey('workflow_id', { createdBy: 'create_order' });
    const store = postgresStore({ pool: database.connect(), schema: database.schema });
    const sessions = sessionStore({ store, key });
    const upstream = await startUpstream({
      shape: { mode: 'stateless' },
      middlewares: [sessions, fsmGate(gate)],
      makeServer: toolServer(['create_order', ...EVENTS], {
        create_order: () => ({ workflow_id: randomUUID() }),
        capture_payment: () => ({ charge_status: charge() }),
      }),
    });
    onTestFinished(upstream.close);
    const client = await connect(upstream.url);
    onTestFinished(() => client.close());
    const runs = runsOf(gate, { sessions });
    return { client, runs, runKey: (id: string) => key.runKey(id), ledger: upstream.ledger };
  }

  async function createOrder({ client }: { client: TestClient }): Promise<string> {
    const { structuredContent } = await client.client.callTool({
      name: 'create_order',
      arguments: {},
    });
    return (structuredContent as { workflow_id: string }).workflow_id;
  }

  it('moves once where two agents race, each on an instance of its own', async () => {
    const instances = [await startInstance(), await startInstance()] as const;
    const workflow_id = await createOrder(instances[0]);
    await instances[1].client.call('reserve_inventory', { workflow_id });
    const answers = await Promise.all(
      instances.map(({ client }) => client.call('authorize_payment', { workflow_id })),
    );
    expect(answers.map(({ isError }) => isError).sort()).toEqual([false, true]);
    const ran = instances
      .flatMap(({ ledger }) => ledger.calls)
      .filter((tool) => tool === 'authorize_payment');
    expect(ran).toHaveLength(1);
    const { runs, runKey } = instances[0];
    expect((await runs.history(runKey(workflow_id))).map(({ from, to }) => [from, to])).toEqual([
      ['created', 'inventory_reserved'],
      ['inventory_reserved', 'payment_authorized'],
    ]);
  });

  it('stays where it is when the charge does not succeed, and moves when it does', async () => {
    const statuses = ['requires_action', 'succeeded'];
    const gate = new StateMachineGate({
      initial: 'payment_authorized',
      states: {
        payment_authorized: { on: { capture_payment: 'payment_captured' } },
        payment_captured: {},
      },
    }).bindTool('capture_payment', 'payment_authorized', {
      success: ({ result }) =>
        result.structuredContent?.charge_status === 'succeeded'
          ? { type: 'capture_payment', payload: { by: 'card' } }
          : undefined,
    });
    const instance = await startInstance(gate, () => statuses.shift() ?? '');
    const workflow_id = await createOrder(instance);
    const states = [];
    for (const _ of [1, 2]) {
      await instance.client.call('capture_payment', { workflow_id });
      states.push((await instance.runs.read(instance.runKey(workflow_id)))?.snapshot.state);
    }
    expect(states).toEqual(['payment_authorized', 'payment_captured']);
    expect((await instance.runs.history(instance.runKey(workflow_id))).at(-1)).toMatchObject({
      event: 'capture_payment',
      payload: { by: 'card' },
    });
  });

  it('waits for a manager in a state of its own, and no tool leads out of it', async () => {
    const gate = orderGate({
      ...TRANSITIONS,
      payment_authorized: { capture_payment: 'awaiting_manager_approval', cancel: 'cancelled' },
      awaiting_manager_approval: { approve_payment: 'payment_captured' },
    });
    const { client, runs, runKey } = await startInstance(gate);
    const workflow_id = await createOrder({ client });
    for (const tool of ['reserve_inventory', 'authorize_payment', 'capture_payment'])
      await client.call(tool, { workflow_id });
    for (const tool of EVENTS)
      expect((await client.call(tool, { workflow_id })).isError).toBe(true);
    const run = runKey(workflow_id);
    expect((await runs.read(run))?.snapshot.state).toBe('awaiting_manager_approval');
    expect(await runs.send(run, 'approve_payment', { actor: 'mia' })).toMatchObject({
      state: 'payment_captured',
    });
    expect((await client.call('trigger_fulfillment', { workflow_id })).isError).toBe(false);
  });
});
