/**
 * The mounts that the docs name, in the three places where a gate can stand: in process, behind the
 * command, and on two instances. Hides how each is started, and what it tells its operator.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { McpServer } from '@modelcontextprotocol/server';
import { exportJWK, generateKeyPair, SignJWT } from 'jose';
import {
  conversationKey,
  type FsmGateOptions,
  fsmGate,
  type Middleware,
  managedHandle,
  type NotificationBus,
  principalKey,
  type RunKeyStrategy,
  StateMachineGate,
  sessionKey,
  sessionStore,
} from '../../src/index.ts';
import type { AtomicStateStore } from '../../src/stores/index.ts';
import { type Latch, latch } from '../../test/helpers/latch.ts';
import { ADDRESS, compiled, startProgram } from '../../test/helpers/program.ts';
import { listen } from '../../test/helpers/serve.ts';
import { startTwoEras } from '../../test/helpers/two-eras.ts';
import { startRedis } from '../../test/services/redis.ts';
import { PLAN, type Shop, type Step } from './clients.ts';

/** Long enough for what a program wrote before an answer to come through its pipe. */
const PIPE_MS = 200;

const MANAGED = { start: 'cart_begin', argument: 'cart' };

interface Mount {
  /** The lines as an app writes them, for the table. */
  readonly lines: string;
  readonly key?: () => RunKeyStrategy | RunKeyStrategy[];
  readonly gate?: FsmGateOptions;
  /** In place of the machine. */
  readonly rules?: Parameters<typeof StateMachineGate.fromOrder>[0];
  /** The same for the command. `undefined` where it has no such option. */
  readonly command: readonly string[] | undefined;
}

export type MountName =
  | 'readme'
  | 'stable'
  | 'order'
  | 'announce'
  | 'principal'
  | 'user'
  | 'conversation'
  | 'handle';

/** Each as a page of the docs has it. */
export const MOUNTS: Readonly<Record<MountName, Mount>> = {
  readme: { lines: '`sessionStore()`, `fsmGate(gate)`', command: [] },
  stable: {
    lines: "`fsmGate(gate, { visibility: 'stable' })`",
    gate: { visibility: 'stable' },
    command: ['--visibility', 'stable'],
  },
  order: {
    lines: "rules of order, `visibility: 'stable'`",
    rules: { cart_checkout: { after: 'cart_add_item' }, cart_pay: { after: 'cart_checkout' } },
    gate: { visibility: 'stable' },
    command: undefined,
  },
  announce: {
    lines: '`fsmGate(gate, { announce: true })`',
    gate: { announce: true },
    command: ['--announce'],
  },
  principal: {
    lines: '`key: [sessionKey(), principalKey()]`',
    key: () => [sessionKey(), principalKey()],
    command: ['--key', 'session', '--key', 'principal'],
  },
  user: {
    lines: "`key: principalKey()`, `visibility: 'stable'`",
    key: principalKey,
    gate: { visibility: 'stable' },
    command: ['--key', 'principal', '--visibility', 'stable'],
  },
  conversation: {
    lines: '`key: [conversationKey({ anonymous: true }), sessionKey()]`',
    key: () => [conversationKey({ anonymous: true }), sessionKey()],
    command: undefined,
  },
  handle: {
    lines: '`key: managedHandle()`',
    key: () => managedHandle(MANAGED),
    command: ['--key', `managed:${MANAGED.argument}=${MANAGED.start}`],
  },
};

/** The machine of the README, and of examples/express-checkout. */
const WORKFLOW = {
  id: 'checkout',
  initial: 'empty',
  states: {
    empty: { on: { ADD_ITEM: 'has_items' } },
    has_items: { on: { CHECKOUT: 'payment', CLEAR: 'empty' } },
    payment: { on: { PAY: 'confirmed', CANCEL: 'has_items' } },
    confirmed: { type: 'final' },
  },
} as const;
const TOOLS = {
  cart_add_item: { states: ['empty', 'has_items'], success: 'ADD_ITEM' },
  cart_checkout: { states: 'has_items', success: 'CHECKOUT' },
  cart_pay: { states: 'payment', success: 'PAY' },
} as const;

/** The middlewares of a mount. `tell` gets what the operator is told. */
export function middlewaresOf(
  name: MountName,
  tell: (said: string) => void,
  shared: { store?: AtomicStateStore; bus?: NotificationBus } = {},
): readonly Middleware[] {
  const { key, gate, rules } = MOUNTS[name];
  const told = { onWarning: tell, onError: (error: unknown) => tell(String(error)) };
  const machine = new StateMachineGate(WORKFLOW)
    .bindTool('cart_add_item', ['empty', 'has_items'], 'ADD_ITEM')
    .bindTool('cart_checkout', 'has_items', 'CHECKOUT')
    .bindTool('cart_pay', 'payment', 'PAY');
  const checkout = rules ? StateMachineGate.fromOrder(rules, { id: 'checkout' }) : machine;
  return [
    sessionStore({ ...(key && { key: key() }), ...shared, ...told }),
    fsmGate(checkout, { ...gate, ...told }),
  ];
}

/** A mount that serves, for one play. */
export interface Served {
  readonly urls: readonly URL[];
  /** What the operator was told so far. */
  told(): Promise<string>;
  close(): Promise<void>;
}

/** Where a gate can stand. */
export interface Place {
  readonly name: string;
  /** A token for a request's headers. */
  readonly token: Readonly<Record<string, string>>;
  /** Serves a mount in front of a shop. `undefined` where the place has no such mount. */
  serve(mount: MountName, shop: OpenShop): Promise<Served | undefined>;
  close(): Promise<void>;
}

/** A shop of its own for each play. */
export class OpenShop implements Shop {
  paid = false;
  readonly #held = new Map<Step, { begun: Latch; released: Latch; aborted: Latch }>();

  hold(tool: Step) {
    const held = { begun: latch(), released: latch(), aborted: latch() };
    this.#held.set(tool, held);
    const { begun, released, aborted } = held;
    return { begun: begun.opened, aborted: aborted.opened, release: released.open };
  }

  /** Adds the shop's tools to a server of SDK v2. */
  readonly register = (server: McpServer): void => {
    for (const tool of PLAN)
      server.registerTool(tool, { description: `Does ${tool}.` }, async ({ mcpReq }) => {
        const held = this.#held.get(tool);
        this.#held.delete(tool);
        if (held !== undefined) mcpReq.signal.addEventListener('abort', held.aborted.open);
        held?.begun.open();
        await held?.released.opened;
        if (tool === 'cart_pay') this.paid = true;
        return { content: [{ type: 'text', text: `${tool} is done.` }] };
      });
  };
}

/** The app itself: middlewares and server in one process. */
export function inProcess(): Place {
  return {
    name: 'in process',
    token: { 'x-user': 'ann' },
    async serve(mount, { register }) {
      const told: string[] = [];
      const middlewares = middlewaresOf(mount, (said) => told.push(said));
      const app = await startTwoEras({ middlewares, register });
      return { urls: [app.url], told: async () => told.join('\n'), close: app.close };
    },
    close: async () => {},
  };
}

/** `mcp-interlock gate --target`, a process for each play. */
export async function behindTheCommand(): Promise<Place> {
  const folder = mkdtempSync(join(tmpdir(), 'interlock-zoo-'));
  const file = join(folder, 'gate.json');
  writeFileSync(file, JSON.stringify({ ...WORKFLOW, tools: TOOLS }));
  const { publicKey, privateKey } = await generateKeyPair('ES256');
  const jwks = JSON.stringify({ keys: [{ ...(await exportJWK(publicKey)), alg: 'ES256' }] });
  const issuer = await listen((_req, res) => {
    res.setHeader('content-type', 'application/json').end(jwks);
  });
  const claims = new SignJWT({ sub: 'ann' }).setIssuer('https://issuer.example');
  const audience = 'https://shop.example/mcp';
  const jwt = await claims
    .setAudience(audience)
    .setProtectedHeader({ alg: 'ES256' })
    .setExpirationTime('1h')
    .sign(privateKey);
  const command = await compiled(
    fileURLToPath(new URL('../../packages/cli/dist/main.js', import.meta.url)),
  );
  const door = ['--jwks', issuer.url.href, '--issuer', 'https://issuer.example'];
  return {
    name: 'behind the command',
    token: { authorization: `Bearer ${jwt}` },
    async serve(mount, { register }) {
      const options = MOUNTS[mount].command;
      if (options === undefined) return undefined;
      const app = await startTwoEras({ register });
      const target = ['--target', app.url.href, '--store', 'memory', '--port', '0'];
      const asks = options.includes('principal') ? [...door, '--audience', audience] : [];
      const gate = await startProgram(command, {
        args: ['gate', file, ...target, ...options, ...asks],
        ready: ADDRESS,
      });
      return {
        urls: [new URL(gate.match)],
        told: async () => {
          await setTimeout(PIPE_MS);
          return gate.output();
        },
        close: async () => {
          await Promise.all([gate.kill9(), app.close()]);
        },
      };
    },
    close: async () => {
      rmSync(folder, { recursive: true });
      await issuer.close();
    },
  };
}

/** Two processes with one Redis: each request of a client goes to the other one. */
export async function onTwoInstances(): Promise<Place> {
  const redis = await startRedis();
  const program = await compiled(fileURLToPath(new URL('./instance.ts', import.meta.url)));
  const children = [0, 1].map(() => fork(program, [redis.url]));
  const ports = await Promise.all(
    children.map(async (child) => ((await once(child, 'message')) as [{ port: number }])[0].port),
  );
  const askAll = (order: object): Promise<{ told: string }[]> =>
    Promise.all(
      children.map((child) => {
        const answered = once(child, 'message') as Promise<[{ told: string }]>;
        child.send(order);
        return answered.then(([answer]) => answer);
      }),
    );
  let plays = 0;
  // One at a time: an answer says not to which order.
  let last: Promise<unknown> = Promise.resolve();
  const inTurn = <T>(task: () => Promise<T>): Promise<T> => {
    const done = last.then(task);
    last = done;
    return done;
  };
  return {
    name: 'on two instances',
    token: { 'x-user': 'ann' },
    async serve(mount, { register }) {
      const app = await startTwoEras({ register });
      const id = `play${plays++}`;
      await inTurn(() => askAll({ mount, id, target: app.url.href }));
      return {
        urls: ports.map((port) => new URL(`http://127.0.0.1:${port}/${id}`)),
        told: async () => (await inTurn(() => askAll({ id }))).map(({ told }) => told).join('\n'),
        close: app.close,
      };
    },
    close: async () => {
      for (const child of children) child.disconnect();
      await Promise.all(children.map((child) => once(child, 'exit')));
      await redis.stop();
    },
  };
}
