import type { RequestHandler } from 'express';
import { describe, expect, it, onTestFinished } from 'vitest';
import { currentStep, type OrderRules, StateMachineGate } from '../../src/index.ts';
import { RawSession, reasonOf, type WireMessage } from '../helpers/raw.ts';
import { begins, pass, type SceneOptions, scene } from '../helpers/scene.ts';
import { startTasks } from '../helpers/task-server.ts';
import { toolServer } from '../helpers/tool-server.ts';

const ID = '1234567890123456789';
const NEAR = '1234567890123456790';
const HOSTS = ['express', 'hono'] as const;
const RULES: OrderRules = {
  cancel_order: { after: [{ tool: 'find_order', same: ['order_id'] }] },
};
const TOOLS = ['find_order', 'cancel_order', 'pay', 'reads', 'passes', 'late', 'free', 'plain'];

const callText = (tool: string, args: string): string =>
  `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"${tool}","arguments":${args}}}`;

async function open(workflow: StateMachineGate<string, string>, options: SceneOptions = {}) {
  const app = await scene({
    workflow,
    makeServer: toolServer(TOOLS),
    ...options,
    shape: { mode: 'stateless', answers: 'json', ...options.shape },
  });
  const session = await app.session();
  const call = async (tool: string, args: string): Promise<WireMessage | undefined> =>
    (await session.post(callText(tool, args))).messages[0];
  return { app, session, call };
}

/** What one function of a binding reads of each call, in each of its places. */
type Read = (args: Readonly<Record<string, unknown>>) => unknown;

function bank(read: Read): StateMachineGate<string, string> {
  const isRead = (args: Readonly<Record<string, unknown>>): boolean => read(args) !== 'never';
  return new StateMachineGate({
    id: 'bank',
    initial: 'open',
    states: { open: { on: { KEEP: 'open' } } },
  })
    .bindTool('pay', 'open', { success: 'KEEP', when: isRead })
    .bindTool('reads', 'open', { success: 'KEEP', guard: ({ args }) => isRead(args) })
    .bindTool('passes', 'open', { guard: ({ args }) => isRead(args) })
    .bindTool('late', 'open', { success: ({ args }) => (isRead(args) ? 'KEEP' : undefined) })
    .bindTool('plain', 'open', 'KEEP');
}

describe.each(HOSTS)('the numbers of an earlier call, behind %s', (host) => {
  it.each([
    [ID, NEAR],
    ['1e400', '1e401'],
    ['90071992547409940', '90071992547409944'],
    ['1e-400', '0'],
    [`[{"id":${ID}}]`, `[{"id":${NEAR}}]`],
  ])('are the same to the last digit: after %s comes no %s', async (one, other) => {
    const { app, call } = await open(StateMachineGate.fromOrder(RULES), { shape: { host } });
    await call('find_order', `{"order_id":${one}}`);
    expect(reasonOf(await call('cancel_order', `{"order_id":${other}}`))).toBe('guard');
    expect(app.ledger.calls).toEqual(['find_order']);
    await call('cancel_order', `{"order_id":${one}}`);
    expect(app.ledger.calls).toEqual(['find_order', 'cancel_order']);
    expect(app.errors).toEqual([]);
  });

  it.each([
    ['1', '1.0'],
    ['1e0', '1'],
    ['0.1', '0.10000000000000001'],
    [ID, `${ID}.0`],
    ['1e400', '10e399'],
  ])('are the same by value: after %s comes %s', async (one, other) => {
    const { app, call } = await open(StateMachineGate.fromOrder(RULES), { shape: { host } });
    await call('find_order', `{"order_id":${one}}`);
    await call('cancel_order', `{"order_id":${other}}`);
    expect(app.ledger.calls).toEqual(['find_order', 'cancel_order']);
  });
});

describe('the idempotency key', () => {
  it('is another one for another number, and the same for the same one', async () => {
    const keys: unknown[] = [];
    const workflow = new StateMachineGate({
      id: 'shop',
      initial: 'open',
      states: { open: { on: { PAY: 'open' } } },
    }).bindTool('pay', 'open', { success: 'PAY', uncertain: 'retry' });
    const { app, session } = await open(workflow, {
      gate: { maxStepMs: 2_000 },
      shape: { mode: 'stateful' },
      makeServer: toolServer(['pay'], {
        pay: (_, __, extra) => {
          keys.push(currentStep(extra)?.idempotencyKey);
          return undefined;
        },
      }),
    });
    for (const order of [ID, `${ID}.0`, NEAR]) {
      const text = callText('pay', `{"order":${order}}`);
      const lost = await begins(app, 'pay', () => session.post(text));
      await pass(app.clock, 3_000);
      await lost.answer;
      // Its outcome would come late, and settle it.
      onTestFinished(lost.finish);
      await pass(app.clock, 9_000);
    }
    expect(keys).toHaveLength(3);
    expect(keys[1]).toBe(keys[0]);
    expect(keys[2]).not.toBe(keys[0]);
  });
});

describe.each(HOSTS)('a number that JavaScript rounds, behind %s', (host) => {
  it.each([ID, '1e400', '-1e400', '1e-400', '1.00000000000000000001', `-${ID}`])(
    'is refused where a function reads it, and only there: %s',
    async (number) => {
      const { app, call } = await open(
        bank(({ order_id }) => order_id),
        { shape: { host } },
      );
      for (const tool of ['pay', 'reads', 'passes', 'late']) {
        const answer = await call(tool, `{"order_id":${number}}`);
        expect([tool, reasonOf(answer)]).toEqual([tool, 'arguments']);
        expect(answer?.result.content[0].text).toContain(
          `the number in "order_id" becomes ${Number(number)} where`,
        );
      }
      expect(app.ledger.calls).toEqual([]);
      for (const tool of ['pay', 'reads', 'passes', 'late'])
        await call(tool, `{"order_id":1,"other":{"n":[${number}]}}`);
      await call('plain', `{"order_id":${number}}`);
      await call('free', `{"order_id":${number}}`);
      expect(app.ledger.calls).toEqual(['pay', 'reads', 'passes', 'late', 'plain', 'free']);
      expect(app.errors).toEqual([]);
    },
  );

  it.each<[string, Read, string]>([
    ['at any depth', (args) => JSON.stringify(args), `{"a":[{"b":[1,${ID}]}]}`],
    ['in a list', ({ list }) => (list as number[])[1], `{"list":[1,${ID}]}`],
    ['by its descriptor', (a) => Object.getOwnPropertyDescriptor(a, 'n')?.value, `{"n":${ID}}`],
    ['in a copy', (args) => ({ ...args }), `{"n":${ID}}`],
    ['by its value', (args) => Object.values(args), `{"n":${ID}}`],
  ])('is refused where a function reads it %s', async (_, read, args) => {
    const { app, call } = await open(bank(read), { shape: { host } });
    for (const tool of ['pay', 'reads', 'passes', 'late'])
      expect(reasonOf(await call(tool, args))).toBe('arguments');
    expect(app.ledger.calls).toEqual([]);
  });

  it.each(['0.1', '0.10000000000000001', '3.14159265358979323846', '9007199254740991', '1e21'])(
    'is none where the double is what it says: %s',
    async (number) => {
      const read: unknown[] = [];
      const { app, call } = await open(
        bank(({ n }) => read.push(n)),
        { shape: { host } },
      );
      for (const tool of ['pay', 'reads', 'passes', 'late']) await call(tool, `{"n":${number}}`);
      expect(app.ledger.calls).toEqual(['pay', 'reads', 'passes', 'late']);
      expect(new Set(read)).toEqual(new Set([Number(number)]));
    },
  );

  it('is refused in any call of a bound tool where it has over 1,000 characters', async () => {
    const { app, call } = await open(
      bank(() => true),
      { shape: { host } },
    );
    const long = ['9'.repeat(1_001), `0.${'0'.repeat(999)}`, `1e${'9'.repeat(1_000_000)}`];
    for (const number of long) {
      const answer = await call('plain', `{"a":[{"b":${number}}]}`);
      expect(reasonOf(answer)).toBe('arguments');
      expect(answer?.result.content[0].text).toContain('more than 1000 characters');
    }
    expect(app.ledger.calls).toEqual([]);
    await call('plain', `{"a":${'9'.repeat(1_000)}}`);
    await call('free', `{"a":${long[0]}}`);
    expect(app.ledger.calls).toEqual(['plain', 'free']);
  });
});

describe('a number that a parser in front has rounded already', () => {
  it('is what the tool gets too; one that is infinite is refused where it is read', async () => {
    const { app, call } = await open(
      bank(({ n }) => n),
      { shape: { parser: true } },
    );
    for (const tool of ['pay', 'reads', 'passes', 'late'])
      expect(reasonOf(await call(tool, '{"n":1e400}'))).toBe('arguments');
    expect(app.ledger.calls).toEqual([]);
    await call('reads', `{"n":${ID}}`);
    expect(app.ledger.calls).toEqual(['reads']);
  });
});

describe('a rounded number that a function reads only with the result', () => {
  it('leaves the outcome unknown', async () => {
    const workflow = new StateMachineGate({
      id: 'bank',
      initial: 'open',
      states: { open: { on: { KEEP: 'open' } } },
    }).bindTool('late', 'open', {
      success: ({ args, result }) => (Array.isArray(result.content) && args.n ? 'KEEP' : undefined),
    });
    const { app, call } = await open(workflow);
    const answer = await call('late', `{"n":${ID}}`);
    expect(answer?.error ?? answer?.result.isError).toBeTruthy();
    expect(app.ledger.calls).toEqual(['late']);
    expect(String(app.errors)).toContain('a number in "n" that JavaScript rounds');
  });
});

describe('a number in an answer that JavaScript rounds', () => {
  const answering =
    (members: string): RequestHandler =>
    (req, res, next) => {
      const { method, id } = req.body ?? {};
      if (method !== 'tools/call') return next();
      res.type('application/json').end(`{"jsonrpc":"2.0","id":${id},${members}}`);
    };

  async function answered(
    members: string,
    read: (call: { result?: unknown; error?: unknown }) => unknown,
  ) {
    const seen: unknown[] = [];
    const choose = (call: { result?: unknown; error?: unknown }): 'GO' => {
      seen.push(read(call));
      return 'GO';
    };
    const workflow = new StateMachineGate({
      id: 'bank',
      initial: 'open',
      states: { open: { on: { GO: 'gone' } }, gone: {} },
    }).bindTool('pay', 'open', { success: choose, failure: choose });
    const { app, session, call } = await open(workflow, {
      shape: { parser: true },
      behind: [answering(members)],
    });
    await call('pay', '{}');
    return { app, seen, state: (await app.runs.read(session.id))?.snapshot.state };
  }

  it.each([
    ['a result', `"result":{"content":[],"structuredContent":{"id":${ID}}}`],
    ['a failed result', `"result":{"content":[],"isError":true,"structuredContent":{"id":1e400}}`],
    ['an error', `"error":{"code":-32000,"message":"no","data":{"id":1e-400}}`],
  ])('decides nothing where a function reads it in %s', async (_, members) => {
    const { app, state } = await answered(members, (call) => JSON.stringify(call));
    expect(state ?? 'open').toBe('open');
    expect(String(app.errors)).toContain('the answer of "pay" has a number in "id"');
    expect(String(app.errors)).not.toContain('12345678');
  });

  it.each([
    ['is not read', `"result":{"content":[],"structuredContent":{"id":${ID},"ok":1}}`],
    [
      'is a fraction',
      `"result":{"content":[],"structuredContent":{"ok":1.00000000000000000001e-5}}`,
    ],
    ['is its double', `"result":{"content":[],"structuredContent":{"ok":1e300,"x":"1e400"}}`],
  ])('decides where it %s', async (_, members) => {
    const { app, seen, state } = await answered(members, ({ result }) => {
      return (result as { structuredContent: { ok: unknown } }).structuredContent.ok;
    });
    expect([state, app.errors]).toEqual(['gone', []]);
    expect(seen).toEqual([JSON.parse(`{${members}}`).result.structuredContent.ok]);
  });
});

describe('a task', () => {
  it('remembers the numbers of its call to the last digit, in another process too', async () => {
    const tasks = startTasks();
    const workflow = () =>
      StateMachineGate.fromOrder({
        'cart.pay': { after: [{ tool: 'cart.checkout', same: ['order'] }] },
      });
    const shape = { mode: 'stateless' } as const;
    const app = await scene({ makeServer: tasks.makeServer, workflow: workflow(), shape });
    const beside = await scene({
      ...{ makeServer: tasks.makeServer, workflow: workflow(), shape },
      beside: app,
    });
    const session = await app.session();
    const asTask = (tool: string, order: string): string =>
      callText(tool, `{"order":${order}}`).replace('"arguments"', '"task":{},"arguments"');
    const created = await session.post(asTask('cart.checkout', ID));
    const taskId = created.messages[0]?.result.task.taskId as string;
    await tasks.finish(taskId, 'done');
    const there = RawSession.resume(beside.url, session.id);
    await there.post({ jsonrpc: '2.0', id: 8, method: 'tasks/result', params: { taskId } });
    const near = await there.post(callText('cart.pay', `{"order":${NEAR}}`));
    expect(reasonOf(near.messages[0])).toBe('guard');
    await there.post(asTask('cart.pay', ID));
    expect(app.ledger.calls.concat(beside.ledger.calls)).toEqual(['cart.checkout', 'cart.pay']);
  });
});
