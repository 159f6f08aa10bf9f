import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { RequestHandler } from 'express';
import type { AtomicStateStore } from '../../src/stores/index.ts';
import type { FaultKind } from './check.ts';
import type { OutsideApi, Surroundings } from './stage.ts';

/**
 * A deliberate fault, and what the checker must call its effect. The checker may report more.
 */
export interface Defect extends Surroundings {
  readonly what: string;
  readonly found: FaultKind;
}

/** The object with some of its methods replaced. */
export function replacing<T extends object>(object: T, replaced: Partial<T>): T {
  return new Proxy(object, {
    get(target, name) {
      const own: unknown = Reflect.get(replaced, name);
      if (own !== undefined) return own;
      const value: unknown = Reflect.get(target, name);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

/** Breaks a part that stands around the real gate. */
export const DEFECTS = {
  'claims-all': {
    what: 'the store grants each claim, whoever has one, and says that the state allows it',
    found: 'illegal-execution',
    store: (store) => replacing(store, { claim: claimAll(store) }),
  },
  'lets-past': {
    what: 'a route in front of the gate takes some calls straight to the server',
    found: 'illegal-execution',
    front: (random, upstream) => (req, res, next) => {
      // Not a handshake, which has neither header: no session would start.
      const { 'mcp-method': method, 'mcp-session-id': session } = req.headers;
      const isCall = method === undefined ? session !== undefined : method === 'tools/call';
      return isCall && req.method === 'POST' && random.chance(0.2)
        ? upstream(req, res, next)
        : next();
    },
  },
  'shows-all': {
    what: 'some lists are not filtered: calls of them are right, and refused',
    found: 'wrong-list',
    store: (store, random) =>
      replacing(store, {
        read: async (run, ttlMs) => {
          const record = await store.read(run, ttlMs);
          return record && random.chance(0.3) ? { ...record, workflows: {} } : record;
        },
      }),
  },
  'loses-tools': {
    what: 'some lists lack a tool that no gate binds',
    found: 'wrong-list',
    front: () => (_req, res, next) => {
      patch(res, (text) => text.replaceAll('"name":"cart.view"', '"name":"cart.vew"'));
      next();
    },
  },
  'forgets-commits': {
    what: 'the store lets some steps go, and says that they are saved',
    found: 'unsaved-success',
    store: (store, random) =>
      replacing(store, {
        commit: async (request) => {
          if (request.trail.tool === undefined || random.chance(0.8)) return store.commit(request);
          await store.release(request, request.token);
          return { status: 'committed', version: 1 };
        },
      }),
  },
  'saves-late': {
    what: 'the store says that it has saved, and does so later',
    found: 'wrong-list',
    store: (store) =>
      replacing(store, {
        commit: async (request) => {
          void delay(30).then(() => store.commit(request));
          return { status: 'committed', version: 1 };
        },
      }),
  },
  'forgets-events': {
    what: 'the store saves no event that comes from outside, and says that it did',
    found: 'lost-event',
    store: (store) =>
      replacing(store, {
        commit: async (request) => {
          if (request.trail.tool !== undefined) return store.commit(request);
          await store.release(request, request.token);
          return { status: 'committed', version: 1 };
        },
      }),
  },
  'commits-twice': {
    what: 'the store enters some moves twice',
    found: 'committed-twice',
    store: (store, random) =>
      replacing(store, {
        commit: async (request) => {
          const result = await store.commit(request);
          if (request.trail.tool === undefined || random.chance(0.7)) return result;
          const { to } = request.trail;
          await moveTo(store, request, { ...request.trail, from: to, to });
          return result;
        },
      }),
  },
  'moves-by-itself': {
    what: 'the store moves a run that nothing moved',
    found: 'trail',
    store: (store, random) =>
      replacing(store, {
        commit: async (request) => {
          const result = await store.commit(request);
          const { to: from } = request.trail;
          if (random.chance(0.2)) await moveTo(store, request, { from, to: 'paid', event: null });
          return result;
        },
      }),
  },
  'skips-versions': {
    what: 'the trail lacks an entry',
    found: 'trail',
    store: (store) =>
      replacing(store, {
        history: async (key, limit) =>
          (await store.history(key, limit)).filter(({ version }) => version !== 3),
      }),
  },
  'looks-behind': {
    what: 'runs.read() says what was there the last time',
    found: 'wrong-look',
    runs: (runs) => replacing(runs, { read: staleRead(runs) }),
  },
  'invents-moves': {
    what: 'the trail and the version know of a move that nothing made',
    found: 'phantom',
    runs: (runs) => {
      const told = new Set<string>();
      return replacing(runs, {
        read: async (run) => {
          const view = await runs.read(run);
          if (view === undefined || !told.has(run)) return view;
          const version = (view.snapshot.version ?? 0) + 1;
          return { ...view, snapshot: { ...view.snapshot, version } };
        },
        history: async (run, limit) => {
          const moves = await runs.history(run, limit);
          const last = moves.at(-1);
          told.add(run);
          if (last === undefined) return moves;
          const { from, to = from, seq, version, attempt, at } = last;
          const more = { from: to, to, seq: seq + 1, version: version + 1, attempt, at };
          return [...moves, { ...more, event: null }];
        },
      });
    },
  },
  'refuses-legal': {
    what: 'the store refuses claims that the state allows',
    found: 'wrong-refusal',
    store: (store, random) =>
      replacing(store, {
        claim: async (request) =>
          store.claim(random.chance(0.1) ? { ...request, states: ['nowhere'] } : request),
      }),
  },
  'forgets-runs': {
    what: 'the store forgets the sessions after some moves',
    found: 'lost',
    store: (store) => {
      const opened: string[] = [];
      let commits = 0;
      return replacing(store, {
        open: (run, session, ttlMs) => {
          opened.push(run);
          return store.open(run, session, ttlMs);
        },
        commit: async (request) => {
          const result = await store.commit(request);
          commits += 1;
          if (commits === 20) await Promise.all(opened.map((run) => store.delete(run)));
          return result;
        },
      });
    },
  },
  'lets-held-expire': {
    what: 'the store lets a held run go when its session ends or expires',
    found: 'lost',
    store: (store) =>
      replacing(store, {
        read: async (run, ttlMs, about) => {
          const record = await store.read(run, ttlMs, about);
          return record?.sessionEnded ? undefined : record;
        },
        history: async (key, limit) => {
          const record = await store.read(key.run, 1);
          return record?.sessionEnded ? [] : store.history(key, limit);
        },
      }),
  },
  'new-keys': {
    what: 'the store gives a step that was cut off another key when it is repeated',
    found: 'key',
    store: (store) =>
      replacing(store, {
        claim: async (request) => {
          const result = await store.claim(request);
          return result.status === 'claimed' ? { ...result, idempotencyKey: randomUUID() } : result;
        },
      }),
  },
  'loses-records': {
    what: 'the store saves no fact that is recorded beside steps, and says that it did',
    found: 'lost-event',
    store: (store) =>
      replacing(store, {
        record: async ({ from }) => ({ status: 'recorded', version: from + 1 }),
      }),
  },
  'ignores-freezes': {
    what: 'the store stops no run, and says that it did',
    found: 'frozen',
    store: (store) =>
      replacing(store, {
        freeze: async ({ run, workflow, initial, freeze: frozen, ttlMs }) => {
          const snapshot = (await store.read(run, ttlMs))?.workflows[workflow]?.snapshot ?? initial;
          return { status: 'changed', snapshot, ...(frozen && { frozen }) };
        },
      }),
  },
  'hides-freezes': {
    what: 'the trail lacks what operators stopped',
    found: 'trail',
    store: (store) =>
      replacing(store, {
        history: async (key, limit) =>
          (await store.history(key, limit)).map((entry) =>
            entry.event === 'freeze' ? { ...entry, event: 'other' } : entry,
          ),
      }),
  },
  'keeps-claims': {
    what: 'a claim stays although its step is over',
    found: 'stuck',
    store: (store) =>
      replacing(store, {
        read: async (run, ttlMs) => {
          const record = await store.read(run, ttlMs);
          const workflow = record?.workflows.shop;
          if (record === undefined || workflow === undefined) return record;
          const claim = workflow.claim ?? { ...CLAIM, token: run };
          return { ...record, workflows: { shop: { ...workflow, claim } } };
        },
      }),
  },
  'one-key': {
    what: 'the store hands out one key for several steps',
    found: 'key',
    store: (store, random) =>
      replacing(store, {
        claim: async (request) => {
          const result = await store.claim(request);
          const idempotencyKey = `key ${random.between(1, 10)}`;
          return result.status === 'claimed' ? { ...result, idempotencyKey } : result;
        },
      }),
  },
  'strips-keys': {
    what: 'the key does not reach some handlers',
    found: 'key',
    handler: (handle, random) => (call) =>
      handle(random.chance(0.8) ? call : { ...call, meta: withoutKey(call.meta) }),
  },
  'runs-twice': {
    what: 'some calls reach the handler twice',
    found: 'ran-twice',
    handler: (handle, random) => async (call) => {
      const result = await handle(call);
      if (random.chance(0.3)) await handle(call);
      return result;
    },
  },
  'runs-beside': {
    what: 'some calls reach the handler a second time while it is at work',
    found: 'overlap',
    handler: (handle, random) => async (call) => {
      if (random.chance(0.7)) return handle(call);
      const again = handle({ ...call, meta: { ...call.meta, [KEY]: 'another key' } });
      const [result] = await Promise.all([handle(call), again]);
      return result;
    },
  },
  'mixes-runs': {
    what: 'some calls reach the handler for another run',
    found: 'foreign-run',
    handler: (handle, random) => (call) =>
      handle(random.chance(0.8) ? call : { ...call, run: call.run === 'ada' ? 'bob' : 'ada' }),
  },
  'drops-changes': {
    what: 'some notifications are lost on their way',
    found: 'untold',
    front: () => (_req, res, next) => {
      patch(res, (text) =>
        text.replaceAll('notifications/tools/list_changed', 'notifications/lost'),
      );
      next();
    },
  },
  'praises-failures': {
    what: 'some failures are shown as successes',
    found: 'wrong-answer',
    front: () => (_req, res, next) => {
      patch(res, (text) => text.replaceAll('"isError":true}', '"isError":false}'));
      next();
    },
  },
  'invents-answers': {
    what: 'some calls are answered as successes and never run',
    found: 'wrong-answer',
    front: (random) => (req, res, next) => {
      if (req.headers['mcp-name'] === undefined || random.chance(0.8)) return next();
      void textOf(req).then((text) => {
        const { id } = JSON.parse(text);
        const result = { content: [{ type: 'text', text: 'done' }], resultType: 'complete' };
        res.json({ jsonrpc: '2.0', id, result });
      });
    },
  },
} satisfies Record<string, Defect>;

export type DefectName = keyof typeof DEFECTS;
export const DEFECT_NAMES = Object.keys(DEFECTS) as DefectName[];

const KEY = 'mcp-interlock/idempotencyKey';
const CLAIM = {
  tool: 'cart.add',
  digest: '',
  uncertain: 'hold',
  idempotencyKey: '',
  live: true,
} as const;

function claimAll(store: AtomicStateStore): AtomicStateStore['claim'] {
  return async (request) => {
    const result = await store.claim(request);
    if (result.status === 'unknown' || result.status === 'claimed') return result;
    // The gate tests the state that it is told, so the store must lie about it too.
    const [state = result.snapshot.state] = request.states ?? [];
    const snapshot = { ...result.snapshot, state };
    return { status: 'claimed', snapshot, idempotencyKey: randomUUID() };
  };
}

/** Moves a run as a step would, without there being one. */
async function moveTo(
  store: AtomicStateStore,
  { run, workflow, ttlMs }: Parameters<AtomicStateStore['commit']>[0],
  trail: Parameters<AtomicStateStore['commit']>[0]['trail'],
): Promise<void> {
  const token = randomUUID();
  const step = { tool: '', digest: '', uncertain: 'retry' } as const;
  const initial = { state: 'empty', updatedAt: 0 };
  const claim = { run, workflow, token, step, states: undefined, initial, leaseMs: 1000, ttlMs };
  if ((await store.claim(claim)).status !== 'claimed') return;
  await store.commit({ run, workflow, token, ttlMs, trail, snapshot: { state: trail.to } });
}

/** Answers with what it read the time before. */
function staleRead(runs: OutsideApi): OutsideApi['read'] {
  const last = new Map<string, Awaited<ReturnType<OutsideApi['read']>>>();
  return async (run) => {
    const view = await runs.read(run);
    const earlier = last.get(run) ?? view;
    last.set(run, view);
    return earlier;
  };
}

/** Patches what the response writes, before it is written. */
function patch(res: Parameters<RequestHandler>[1], change: (text: string) => string): void {
  const { write, end } = res;
  const changed = (chunk: unknown): unknown =>
    typeof chunk === 'string' || chunk instanceof Uint8Array
      ? Buffer.from(change(Buffer.from(chunk as Uint8Array).toString()))
      : chunk;
  const { writeHead } = res;
  res.writeHead = ((status: number, ...rest: unknown[]) => {
    res.removeHeader('content-length');
    const last = rest.at(-1);
    if (typeof last === 'object' && last !== null) Reflect.deleteProperty(last, 'content-length');
    return (writeHead as (...args: unknown[]) => unknown).call(res, status, ...rest);
  }) as typeof res.writeHead;
  res.write = ((chunk: unknown, ...rest: unknown[]) =>
    (write as (...args: unknown[]) => boolean).call(
      res,
      changed(chunk),
      ...rest,
    )) as typeof res.write;
  res.end = ((chunk: unknown, ...rest: unknown[]) =>
    (end as (...args: unknown[]) => unknown).call(res, changed(chunk), ...rest)) as typeof res.end;
}

function withoutKey(meta: object | undefined): object {
  return Object.fromEntries(Object.entries(meta ?? {}).filter(([name]) => name !== KEY));
}

async function textOf(req: Parameters<RequestHandler>[0]): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of req) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString();
}
