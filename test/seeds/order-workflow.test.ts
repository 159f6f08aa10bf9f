import { randomUUID } from 'node:crypto';
import { describe, expect, it, onTestFinished } from 'vitest';
import { type FsmConfig, handleKey, StateMachineGate } from '../../src/index.ts';
import { postgresStore } from '../../src/stores/postgres.ts';
import { ManualClock } from '../helpers/manual-clock.ts';
import { makePostgresSchema } from '../helpers/postgres-schema.ts';
import { passUntil, type SceneClient, type SceneOptions, scene } from '../helpers/scene.ts';
import { toolServer } from '../helpers/tool-server.ts';

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

type AnyGate = StateMachineGate<string, string>;

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
  /** A client whose order has come to that state. */
  async function orderIn(state: string) {
    const app = await scene({
      workflow: orderGate(),
      shape: { mode: 'stateless', answers: 'json' },
      makeServer: toolServer(['get_order_workflow', ...EVENTS]),
    });
    const client = await app.client();
    for (const event of WAYS.get(state) ?? []) await client.calls(event);
    return { ...app, client, order: app.run(client.run) };
  }

  it.each(STATES)(
    '%s: the tools of its events are shown, every other one is refused',
    async (state) => {
      const { client, order, ledger } = await orderIn(state);
      expect((await client.raw.tools()).slice(1).sort()).toEqual(eventsIn(state).sort());
      const before = ledger.calls.length;
      for (const event of EVENTS.filter((each) => !eventsIn(state).includes(each))) {
        const { meta } = await client.isRefused(event, 'state');
        expect(meta['mcp-interlock/refusal']).toMatchObject({
          state,
          available: expect.toSatisfy(
            (names: string[]) => names.sort().join() === eventsIn(state).sort().join(),
          ),
        });
      }
      expect(ledger.calls.length).toBe(before);
      await order.isIn(state);
    },
  );

  it.each(EDGES)('$from leads by $event to $to', async ({ from, event, to }) => {
    const { client, order } = await orderIn(from);
    await client.calls(event);
    await order.isIn(to);
  });
});

describe('a workflow in Postgres that its tools name by workflow_id', () => {
  /** Each call starts an instance of the app, with a pool of its own to the one database. */
  async function instances() {
    const { schema, connect, drop } = await makePostgresSchema();
    onTestFinished(drop);
    await postgresStore({ pool: connect(), schema }).migrate();
    const clock = new ManualClock();
    return (workflow?: AnyGate, charge?: () => string) =>
      startInstance({ clock, data: postgresStore({ pool: connect(), schema }) }, workflow, charge);
  }

  async function startInstance(
    beside: NonNullable<SceneOptions['beside']>,
    workflow: AnyGate = orderGate(),
    charge = () => 'succeeded',
  ) {
    const key = handleKey('workflow_id', { createdBy: 'create_order' });
    const app = await scene({
      workflow,
      beside,
      session: { key },
      shape: { mode: 'stateless' },
      makeServer: toolServer(['create_order', ...EVENTS], {
        create_order: () => ({ workflow_id: randomUUID() }),
        capture_payment: () => ({ charge_status: charge() }),
      }),
    });
    return { ...app, client: await app.client(), runKey: (id: string) => key.runKey(id) };
  }

  async function createOrder({ client }: { client: SceneClient }): Promise<string> {
    const { structuredContent } = await client.raw.client.callTool({
      name: 'create_order',
      arguments: {},
    });
    return (structuredContent as { workflow_id: string }).workflow_id;
  }

  it('moves once where two clients race, each in a process of its own', async () => {
    const start = await instances();
    const both = [await start(), await start()] as const;
    const workflow_id = await createOrder(both[0]);
    await both[1].client.calls('reserve_inventory', { workflow_id });
    // The second one waits for the first, and asks again by the clock that they share. The clock
    // goes no faster than the real database: a store's deadline is of the same clock.
    const racing = both.map(({ client }) => client.raw.call('authorize_payment', { workflow_id }));
    const answers = await passUntil(both[0].clock, Promise.all(racing), 50);
    expect(answers.map(({ isError }) => isError).sort()).toEqual([false, true]);
    const ran = both
      .flatMap(({ ledger }) => ledger.calls)
      .filter((tool) => tool === 'authorize_payment');
    expect(ran).toHaveLength(1);
    const { runs, runKey } = both[0];
    expect((await runs.history(runKey(workflow_id))).map(({ from, to }) => [from, to])).toEqual([
      ['created', 'inventory_reserved'],
      ['inventory_reserved', 'payment_authorized'],
    ]);
  });

  it('stays where it is when the charge does not succeed, and moves when it does', async () => {
    const statuses = ['requires_action', 'succeeded'];
    const gate = new StateMachineGate<string, string>({
      id: 'order',
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
    const start = await instances();
    const instance = await start(gate, () => statuses.shift() ?? '');
    const workflow_id = await createOrder(instance);
    const states = [];
    for (const _ of [1, 2]) {
      await instance.client.calls('capture_payment', { workflow_id });
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
    const start = await instances();
    const { client, runs, runKey, run: runOf } = await start(gate);
    const workflow_id = await createOrder({ client });
    for (const tool of ['reserve_inventory', 'authorize_payment', 'capture_payment'])
      await client.calls(tool, { workflow_id });
    for (const tool of EVENTS) await client.isRefused(tool, 'state', { workflow_id });
    const run = runKey(workflow_id);
    await runOf(run).isIn('awaiting_manager_approval');
    expect(await runs.send(run, 'approve_payment', { actor: 'mia' })).toMatchObject({
      state: 'payment_captured',
    });
    await client.calls('trigger_fulfillment', { workflow_id });
  });
});
