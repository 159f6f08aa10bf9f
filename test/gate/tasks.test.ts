import { CallToolResultSchema } from '@modelcontextprotocol/sdk/types.js';
import { describe, expect, it } from 'vitest';
import { StateMachineGate, UnknownOutcome } from '../../src/index.ts';
import { runsOf } from '../../src/runs/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { ListEventStore } from '../helpers/event-store.ts';
import { ManualClock } from '../helpers/manual-clock.ts';
import { RawSession, reasonOf } from '../helpers/raw.ts';
import { pass, type Scene, type SceneOptions, scene, settle } from '../helpers/scene.ts';
import { createTask, startTasks, type Tasks } from '../helpers/task-server.ts';

const MINUTE = 60_000;
const STATELESS = { mode: 'stateless' } as const;

interface TaskApp extends Scene {
  readonly tasks: Tasks;
}

async function start(options: SceneOptions = {}, tasks = startTasks()): Promise<TaskApp> {
  return { ...(await scene({ makeServer: tasks.makeServer, ...options })), tasks };
}

/**
 * Another process with the same data, the same task store, and the same time unless it has its own.
 */
function startBeside(app: TaskApp, options: SceneOptions = {}): Promise<TaskApp> {
  return start({ shape: STATELESS, beside: app, ...options }, app.tasks);
}

const textOf = (message: { result?: { content?: { text?: string }[] } }) =>
  message.result?.content?.[0]?.text;

describe('a task of SDK v1', () => {
  for (const answers of ['sse', 'json'] as const) {
    it(`moves the run when the real client has seen it through (${answers})`, async () => {
      const app = await start({ shape: { answers } });
      const client = await app.client();
      await client.raw.streaming;
      const seen: string[] = [];
      const stream = client.raw.client.experimental.tasks.callToolStream(
        { name: 'cart.add_item', arguments: {} },
        CallToolResultSchema,
        { task: { ttl: MINUTE } },
      );
      for await (const message of stream) {
        seen.push(message.type);
        if (message.type === 'taskCreated') {
          expect(message.task.ttl).toBe(MINUTE);
          await app.run(client.run).isIn('empty', 'running');
          expect(client.told).toBe(0);
          await app.tasks.finish(message.task.taskId, 'added');
        }
        if (message.type === 'result')
          expect(message.result.content).toEqual([{ type: 'text', text: 'added' }]);
      }
      expect(seen.at(-1)).toBe('result');
      await app.run(client.run).isIn('has_items', 'idle');
      await client.isTold(1);
      expect(await client.raw.tools()).toContain('cart.checkout');
      expect(app.errors).toEqual([]);
    });

    it(`moves the run if only its result is asked for (${answers})`, async () => {
      const app = await start({ shape: { answers } });
      const session = await app.session();
      const taskId = await createTask(session, 'cart.add_item');
      const id = 'result';
      const asked = session.post({
        jsonrpc: '2.0',
        id,
        method: 'tasks/result',
        params: { taskId },
      });
      await settle();
      await app.run(session.id).isIn('empty', 'running');
      await app.tasks.finish(taskId, 'added');
      const { messages } = await asked;
      expect(messages.map((each) => each.method ?? each.id)).toEqual(
        answers === 'sse' ? ['notifications/tools/list_changed', id] : [id],
      );
      await app.run(session.id).isIn('has_items', 'idle');
    });
  }

  it('costs one operation more when it is created, and one when it has ended', async () => {
    const app = await start();
    const session = await app.session();
    app.store.take();
    const taskId = await createTask(session, 'cart.add_item');
    expect(app.store.take()).toEqual(['claim', 'claim']);
    await session.ask('tasks/get', { taskId });
    expect(app.store.take()).toEqual([]);
    await app.tasks.finish(taskId, 'added');
    await session.ask('tasks/get', { taskId });
    expect(app.store.take()).toEqual(['commit', 'delete']);
    await session.ask('tasks/result', { taskId });
    expect(app.store.take()).toEqual([]);
  });

  it('leaves the run where it is when it fails, and lets it go', async () => {
    const app = await start();
    const session = await app.session();
    for (const method of ['tasks/get', 'tasks/result']) {
      const taskId = await createTask(session, 'cart.add_item');
      await app.tasks.finish(taskId, 'sold out', 'failed');
      const { result } = await session.ask(method, { taskId });
      expect(result).toMatchObject(
        method === 'tasks/get' ? { status: 'failed' } : { isError: true },
      );
      await app.run(session.id).isIn('empty', 'idle');
    }
    expect(app.errors).toEqual([]);
  });

  it('lets the run go when it is cancelled', async () => {
    const app = await start();
    const session = await app.session();
    const taskId = await createTask(session, 'cart.add_item');
    expect((await session.ask('tasks/cancel', { taskId })).result.status).toBe('cancelled');
    await app.run(session.id).isIn('empty', 'idle');
    expect((await session.ask('tasks/result', { taskId })).error.code).toBe(-32603);
    const next = await createTask(session, 'cart.add_item');
    await app.run(session.id).isIn('empty', 'running');
    await app.tasks.finish(next, 'added');
    await session.ask('tasks/get', { taskId: next });
    await app.run(session.id).isIn('has_items', 'idle');
  });

  it('keeps the claim while the answers say nothing of its end', async () => {
    const app = await start();
    const session = await app.session();
    const taskId = await createTask(session, 'cart.add_item');
    await session.ask('tasks/get', { taskId });
    await session.ask('tasks/list');
    // SDK v1's answer when its task store fails.
    app.tasks.store.getTask = () => Promise.reject(new Error('no connection'));
    expect((await session.ask('tasks/result', { taskId })).error.code).toBe(-32603);
    await app.run(session.id).isIn('empty', 'running');
  });

  it('keeps its claim for as long as it lives, and other calls wait in vain', async () => {
    const app = await start();
    const session = await app.session();
    await createTask(session, 'cart.add_item');
    await pass(app.clock, MINUTE / 4);
    await app.run(session.id).isIn('empty', 'running');
    const other = session.call('cart.add_item');
    await settle();
    await pass(app.clock, 40_500);
    expect(reasonOf(await other)).toBe('busy');
  });

  it('has an unknown outcome once its ttl is over, and a late end is still saved', async () => {
    const app = await start();
    const session = await app.session();
    const taskId = await createTask(session, 'cart.add_item');
    await pass(app.clock, MINUTE - 1_000);
    expect(app.errors).toEqual([]);
    await pass(app.clock, 1_000);
    expect(app.errors).toEqual([expect.any(UnknownOutcome)]);
    await pass(app.clock, 8_500);
    await app.run(session.id).isIn('empty', 'held');
    await app.tasks.finish(taskId, 'added');
    await session.ask('tasks/result', { taskId });
    await app.run(session.id).isIn('has_items', 'idle');
  });

  it('lives for the longest that a step may take where it says nothing of its life', async () => {
    const app = await start({ gate: { maxStepMs: 3 * MINUTE } });
    const session = await app.session();
    await createTask(session, 'cart.add_item', {});
    await pass(app.clock, 3 * MINUTE - 1_000);
    expect(app.errors).toEqual([]);
    await pass(app.clock, 1_000);
    expect(app.errors).toEqual([expect.any(UnknownOutcome)]);
  });

  it('is saved once, even if many requests ask for its end at once', async () => {
    const app = await start();
    const session = await app.session();
    const taskId = await createTask(session, 'cart.add_item');
    await app.tasks.finish(taskId, 'added');
    const methods = ['tasks/get', 'tasks/result', 'tasks/get', 'tasks/result'];
    await Promise.all(methods.map((method) => session.ask(method, { taskId })));
    await session.call('cart.view');
    await session.ask('tasks/result', { taskId });
    expect(app.store.times('commit')).toBe(1);
    const trail = await app.runs.history(session.id);
    expect(trail.map(({ from, to, tool }) => [from, to, tool])).toEqual([
      ['empty', 'has_items', 'cart.add_item'],
    ]);
  });

  it('moves the run when the session’s own stream tells of its end', async () => {
    const app = await start();
    const session = await app.session();
    const stream = await session.listen();
    const taskId = await createTask(session, 'cart.add_item');
    await app.tasks.finish(taskId, 'added');
    await expect
      .poll(() => stream.messages.map(({ method }) => method))
      .toEqual(['notifications/tools/list_changed', 'notifications/tasks/status']);
    await app.run(session.id).isIn('has_items', 'idle');
    stream.cut();
  });

  it('moves the run when its result comes on a stream that the client resumes', async () => {
    const app = await start({ eventStore: () => new ListEventStore() });
    const session = await app.session();
    const taskId = await createTask(session, 'cart.add_item');
    const asking = await session.stream({
      jsonrpc: '2.0',
      id: 'r',
      method: 'tasks/result',
      params: { taskId },
    });
    await expect.poll(() => asking.lastEventId).toBeDefined();
    const { lastEventId = '' } = asking;
    asking.cut();
    let resumed = await session.listen(lastEventId);
    await expect
      .poll(async () => {
        if (resumed.status !== 200) resumed = await session.listen(lastEventId);
        return resumed.status;
      })
      .toBe(200);
    await app.tasks.finish(taskId, 'added');
    await expect.poll(() => resumed.messages.find(({ id }) => id === 'r')).toBeDefined();
    await app.run(session.id).isIn('has_items', 'idle');
    resumed.cut();
  });

  it('is announced in words at the end of its result, to the character as it came', async () => {
    const app = await start({
      gate: { announce: true },
      behind: [
        (_req, res, next) => {
          const write = res.write.bind(res) as (text: string) => boolean;
          res.write = ((chunk: Buffer | string) =>
            write(
              Buffer.from(chunk as Buffer)
                .toString()
                .replace('"text":"added"', '"n":12345678901234567890,"text":"added"'),
            )) as never;
          next();
        },
      ],
    });
    const session = await app.session();
    const taskId = await createTask(session, 'cart.add_item');
    await app.tasks.finish(taskId, 'added');
    await session.ask('tasks/get', { taskId });
    for (const id of ['one', 'two']) {
      const { text } = await session.post({
        jsonrpc: '2.0',
        id,
        method: 'tasks/result',
        params: { taskId },
      });
      expect(text).toContain('12345678901234567890');
      expect(text).toContain('[System:');
    }
  });
});

describe('an end that is seen elsewhere', () => {
  it('is saved by the process that sees it, and frees the one that waits for it', async () => {
    const app = await start({ shape: STATELESS });
    const session = await app.session();
    const beside = await startBeside(app);
    const there = RawSession.resume(beside.url, session.id);
    const taskId = await createTask(session, 'cart.add_item');
    await app.tasks.finish(taskId, 'added');
    beside.store.take();
    expect(textOf(await there.ask('tasks/result', { taskId }))).toBe('added');
    expect(beside.store.take()).toEqual(['read', 'read', 'commit', 'delete']);
    await app.run(session.id).isIn('has_items', 'idle');
    const next = session.ask('tools/call', { name: 'cart.checkout', arguments: {}, task: {} });
    await settle();
    await pass(app.clock, 3_000);
    expect((await next).result.task.status).toBe('working');
    expect(app.errors).toEqual([]);
  });

  it('is told once if two processes see it, and both show the success', async () => {
    const moves: string[] = [];
    const watched = (process: string) => {
      const workflow = checkoutGate();
      workflow.onTransition(({ event }) => void moves.push(`${process} ${event}`));
      return { workflow };
    };
    const app = await start({ shape: STATELESS, ...watched('one') });
    const session = await app.session();
    const beside = await startBeside(app, watched('other'));
    const taskId = await createTask(session, 'cart.add_item');
    await app.tasks.finish(taskId, 'added');
    const there = RawSession.resume(beside.url, session.id);
    expect(textOf(await there.ask('tasks/result', { taskId }))).toBe('added');
    const body = { jsonrpc: '2.0', id: 'again', method: 'tasks/result', params: { taskId } };
    const again = await session.post(body);
    expect(again.messages.map((each) => each.method ?? textOf(each))).toEqual(['added']);
    expect(moves).toEqual(['other ADD_ITEM']);
    expect([...app.errors, ...beside.errors]).toEqual([]);
  });

  it('is told by the process whose commit was saved though its answer was lost', async () => {
    const moves: unknown[] = [];
    const workflow = checkoutGate();
    workflow.onTransition(({ event }) => void moves.push(event));
    const app = await start({ workflow });
    const session = await app.session();
    const taskId = await createTask(session, 'cart.add_item');
    await app.tasks.finish(taskId, 'added');
    app.store.fail('commit', 1, 'done');
    const asked = session.ask('tasks/result', { taskId });
    await expect.poll(() => app.store.asked).toContain('commit');
    await pass(app.clock, 1_000, 50);
    expect(textOf(await asked)).toBe('added');
    expect(moves).toEqual(['ADD_ITEM']);
  });

  it('is no unknown outcome for a process that stood still past the task’s ttl', async () => {
    const frozen = new ManualClock();
    const app = await start({ shape: STATELESS, gate: { clock: frozen } });
    const session = await app.session();
    const beside = await startBeside(app);
    const taskId = await createTask(session, 'cart.add_item');
    await app.tasks.finish(taskId, 'added');
    await RawSession.resume(beside.url, session.id).ask('tasks/get', { taskId });
    frozen.advance(2 * MINUTE);
    await settle();
    app.store.take();
    await pass(frozen, 60 * MINUTE, MINUTE);
    expect(app.store.take()).toEqual([]);
    expect(app.errors).toEqual([]);
  });

  it('is saved if the process that created the task is gone', async () => {
    const frozen = new ManualClock();
    const app = await start({
      shape: STATELESS,
      session: { clock: frozen },
      gate: { clock: frozen },
    });
    const session = await app.session();
    const taskId = await createTask(session, 'cart.add_item');
    await app.close();
    app.clock.advance(9_000);
    await app.run(session.id).isIn('empty', 'held');
    const beside = await startBeside(app);
    await app.tasks.finish(taskId, 'added');
    await RawSession.resume(beside.url, session.id).ask('tasks/get', { taskId });
    await app.run(session.id).isIn('has_items', 'idle');
  });

  it('changes nothing if an operator has resolved the run meanwhile', async () => {
    const frozen = new ManualClock();
    const app = await start({
      shape: STATELESS,
      session: { clock: frozen },
      gate: { clock: frozen },
    });
    const session = await app.session();
    const taskId = await createTask(session, 'cart.add_item');
    app.clock.advance(9_000);
    await runsOf(checkoutGate(), { store: app.data }).resolve(session.id, 'failed');
    const beside = await startBeside(app);
    await app.tasks.finish(taskId, 'added');
    const reply = await RawSession.resume(beside.url, session.id).ask('tasks/result', { taskId });
    expect(reply.result.isError).toBe(true);
    expect(textOf(reply)).toContain('outcome could not be recorded');
    await app.run(session.id).isIn('empty', 'idle');
  });
});

describe('a task id', () => {
  it('means nothing in another session, even if the upstream answers for it', async () => {
    const app = await start({ shape: STATELESS });
    const session = await app.session();
    const other = await app.session();
    const taskId = await createTask(session, 'cart.add_item');
    await app.tasks.finish(taskId, 'added');
    expect((await other.ask('tasks/get', { taskId })).result.status).toBe('completed');
    expect(textOf(await other.ask('tasks/result', { taskId }))).toBe('added');
    await app.run(other.id).isIn('empty', 'idle');
    await app.run(session.id).isIn('empty', 'running');
  });

  it('of a tool that is not bound passes as it came', async () => {
    const app = await start();
    const session = await app.session();
    const taskId = await createTask(session, 'audit');
    await app.tasks.finish(taskId, 'looked');
    app.store.take();
    expect(textOf(await session.ask('tasks/result', { taskId }))).toBe('looked');
    expect(app.store.take()).toEqual(['read']);
    await app.run(session.id).isIn('empty', 'idle');
  });

  it('that an upstream uses again means the newer task', async () => {
    const tasks = startTasks();
    Object.assign(tasks.store, { generateTaskId: () => 'task-1' });
    const app = await start({ shape: STATELESS }, tasks);
    const session = await app.session();
    await createTask(session, 'cart.add_item');
    const other = await startBeside(app);
    await app.close();
    await pass(app.clock, MINUTE + 9_000);
    tasks.store.cleanup();
    await runsOf(checkoutGate(), { store: app.data }).resolve(session.id, 'succeeded');
    const there = RawSession.resume(other.url, session.id);
    expect(await createTask(there, 'cart.checkout')).toBe('task-1');
    await tasks.finish('task-1', 'checked out');
    const third = await startBeside(app);
    await RawSession.resume(third.url, session.id).ask('tasks/result', { taskId: 'task-1' });
    await app.run(session.id).isIn('payment', 'idle');
  });
});

describe('an end that cannot be saved', () => {
  it('is not shown as a success, and is saved when the client asks again', async () => {
    const app = await start();
    const session = await app.session();
    const taskId = await createTask(session, 'cart.add_item');
    await app.tasks.finish(taskId, 'added');
    app.store.fail('commit');
    const polled = session.ask('tasks/get', { taskId });
    await settle();
    await pass(app.clock, 9_000);
    expect((await polled).result).toMatchObject({
      status: 'failed',
      statusMessage: expect.stringContaining(
        'cart.add_item ran, but its outcome could not be recorded',
      ),
    });
    const [one, two] = [
      session.ask('tasks/result', { taskId }),
      session.ask('tasks/result', { taskId }),
    ];
    await settle();
    await pass(app.clock, 9_000);
    for (const { result } of [await one, await two]) {
      expect(result.isError).toBe(true);
      expect(result._meta['mcp-interlock/outcome']).toMatchObject({
        outcome: 'unknown',
        ran: true,
      });
    }
    app.store.heal();
    expect(textOf(await session.ask('tasks/result', { taskId }))).toBe('added');
    await app.run(session.id).isIn('has_items', 'idle');
  });

  it('is kept back if a process cannot find out whose it is', async () => {
    const app = await start({ shape: STATELESS });
    const session = await app.session();
    const beside = await startBeside(app);
    const there = RawSession.resume(beside.url, session.id);
    const taskId = await createTask(session, 'cart.add_item');
    await there.ask('tasks/get', { taskId });
    await app.tasks.finish(taskId, 'added');
    beside.store.fail('read', 1);
    const { error } = await there.ask('tasks/result', { taskId });
    expect(error).toEqual({
      code: -32603,
      message: 'The outcome of the task could not be recorded; try again later',
    });
    await there.ask('tasks/result', { taskId });
    await app.run(session.id).isIn('has_items', 'idle');
  });

  it('is kept back by a deployment that cannot read where the task found its run', async () => {
    const app = await start({ shape: STATELESS });
    const session = await app.session();
    const renamed = new StateMachineGate({
      id: 'checkout',
      initial: 'begun',
      states: { begun: { on: { ADD_ITEM: 'has_items' } }, has_items: {} },
    }).bindTool('cart.add_item', ['begun', 'has_items'], 'ADD_ITEM');
    const beside = await startBeside(app, { workflow: renamed });
    const there = RawSession.resume(beside.url, session.id);
    const taskId = await createTask(session, 'cart.add_item');
    await app.tasks.finish(taskId, 'added');
    const { error } = await there.ask('tasks/result', { taskId });
    expect(error?.code).toBe(-32603);
    expect(beside.errors).toMatchObject([{ code: 'ERR_INTERLOCK_SNAPSHOT' }]);
    await app.run(session.id).isIn('empty', 'running');
    expect(textOf(await session.ask('tasks/result', { taskId }))).toBe('added');
    await app.run(session.id).isIn('has_items', 'idle');
  });

  it('is known to the process that created the task even if its ticket was not kept', async () => {
    const app = await start();
    const session = await app.session();
    const { claim } = app.store;
    app.store.claim = (request) =>
      request.run.startsWith('task ') ? Promise.reject(new Error('no connection')) : claim(request);
    const taskId = await createTask(session, 'cart.add_item');
    expect(app.errors).toHaveLength(1);
    await app.tasks.finish(taskId, 'added');
    await session.ask('tasks/get', { taskId });
    await app.run(session.id).isIn('has_items', 'idle');
  });
});

describe('an end that cannot be understood', () => {
  /** Reads an argument only if the result has content, so the gate cannot foresee it. */
  const counting = () =>
    new StateMachineGate({
      id: 'counting',
      initial: 'open',
      states: { open: { on: { FEW: 'few', MANY: 'many' } }, few: {}, many: {} },
    }).bindTool('cart.add_item', 'open', {
      success: ({ args, result }) => {
        if (result.content === undefined) return undefined;
        return args.amount === 1 ? 'FEW' : 'MANY';
      },
    });

  it.each(['the process that created the task', 'another process'])(
    'holds the run, also by %s, and no claim is renewed for ever',
    async (witness) => {
      const app = await start({ shape: STATELESS, workflow: counting() });
      const beside = await startBeside(app, { workflow: counting() });
      const session = await app.session();
      const made = await session.ask('tools/call', {
        name: 'cart.add_item',
        arguments: { Amount: 1 },
        task: { ttl: MINUTE },
      });
      const { taskId } = (made.result as { task: { taskId: string } }).task;
      await app.tasks.finish(taskId, 'added');
      const isOwn = witness !== 'another process';
      if (!isOwn) await app.close();
      const seen = isOwn ? app : beside;
      const poller = isOwn ? session : RawSession.resume(beside.url, session.id);
      for (let asked = 0; asked < 2; asked++) {
        const { messages } = await poller.post({
          jsonrpc: '2.0',
          id: `get ${asked}`,
          method: 'tasks/get',
          params: { taskId },
        });
        expect(JSON.stringify(messages[0])).toContain('ran, but its outcome could not be recorded');
      }
      expect(seen.errors.filter((error) => error instanceof UnknownOutcome)).toHaveLength(1);
      await pass(app.clock, 10 * MINUTE);
      await beside.run(session.id).is('held');
    },
  );
});

describe('two gates', () => {
  const audit = () =>
    new StateMachineGate({
      id: 'audit',
      initial: 'quiet',
      states: { quiet: { on: { SEEN: 'noted' } }, noted: {} },
    }).bindTool('cart.add_item', 'quiet', 'SEEN');

  it('both move with one task, whichever process sees its end', async () => {
    const app = await start({ shape: STATELESS, workflow: [checkoutGate(), audit()] });
    const beside = await startBeside(app, { workflow: [checkoutGate(), audit()] });
    const [here, elsewhere] = [await app.session(), await app.session()];
    for (const [session, poller] of [
      [here, here],
      [elsewhere, RawSession.resume(beside.url, elsewhere.id)],
    ] as const) {
      const taskId = await createTask(session, 'cart.add_item');
      await app.tasks.finish(taskId, 'added');
      await poller.ask('tasks/result', { taskId });
      await app.run(session.id).isIn('has_items', 'idle');
      const audited = await runsOf(audit(), { store: app.data }).read(session.id);
      expect(audited?.snapshot.state).toBe('noted');
    }
  });
});
