import type { RequestHandler } from 'express';
import { expect, it } from 'vitest';
import { Client, type Era, type Habit } from '../../lab/zoo/clients.ts';
import { OpenShop } from '../../lab/zoo/mounts.ts';
import { CLIENTS } from '../../lab/zoo/zoo.ts';
import { fsmGate, type Middleware, StateMachineGate, sessionStore } from '../../src/index.ts';
import { startTwoEras } from '../helpers/two-eras.ts';

/** A gate that would refuse each call of the shop's tools. */
function observing(): Middleware[] {
  const gate = new StateMachineGate({
    id: 'door',
    initial: 'closed',
    states: { closed: { on: { OPEN: 'open' } }, open: {} },
  }).bindTool('cart_*', ['open']);
  return [sessionStore({ onWarning: () => {} }), fsmGate(gate, { enforce: false })];
}

/** Writes down each answer, but for what differs from one play to the next anyway: ids, dates. */
function recorder(answers: string[]): RequestHandler {
  return (_req, res, next) => {
    const at = answers.push('no answer') - 1;
    const chunks: string[] = [];
    const { write, end } = res;
    res.write = (...given: unknown[]) => {
      chunks.push(textOf(given[0]));
      return write.apply(res, given as never);
    };
    res.end = (...given: unknown[]) => {
      chunks.push(textOf(given[0]));
      return end.apply(res, given as never);
    };
    res.on('close', () => {
      const { date: _, 'mcp-session-id': __, ...headers } = res.getHeaders();
      const body = chunks.join('').replaceAll(/"id":\d+/g, '"id":0');
      answers[at] = `${res.statusCode} ${JSON.stringify(headers)} ${body}`;
    });
    next();
  };
}

/** A server that opens sessions: else the id that is added makes clients behave otherwise. */
const minting: RequestHandler = (_req, res, next) => {
  if (res.req.method === 'POST') res.setHeader('mcp-session-id', 'a-session');
  next();
};

function textOf(chunk: unknown): string {
  if (typeof chunk === 'string') return chunk;
  return chunk instanceof Uint8Array ? Buffer.from(chunk).toString() : '';
}

async function play(habit: Habit, era: Era, middlewares: readonly Middleware[]) {
  const answers: string[] = [];
  const shop = new OpenShop();
  const { register } = shop;
  const before = [recorder(answers), minting];
  const app = await startTwoEras({ before, middlewares, register });
  const client = { urls: [app.url], shop, era, token: { 'x-user': 'ann' } };
  const outcome = await new Client(habit, { ...client, isTold: async () => true }).run();
  await app.close();
  return { answers, outcome };
}

const plays = CLIENTS.flatMap((habit) =>
  (['2025-11-25', '2026-07-28'] as const)
    .filter((era) => habit[era] !== undefined)
    .map((era) => [habit.name, era, habit] as const),
);

it.each(plays)(
  'leaves what "%s" gets in the era of %s as it is',
  async (_, era, habit) => {
    const bare = await play(habit, era, []);
    const observed = await play(habit, era, observing());
    expect(observed).toEqual(bare);
    expect(bare.answers.length).toBeGreaterThan(1);
  },
  30_000,
);
