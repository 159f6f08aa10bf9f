import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Consumer } from '../helpers/consumer.ts';
import { Page } from '../helpers/markdown.ts';

const page = new Page('docs/build/testing.md');
const consumer = new Consumer();

/** The gate and the app of the page's readers. */
const CHECKOUT = `
import { StateMachineGate } from 'mcp-interlock';
export const checkout = new StateMachineGate({
  id: 'checkout',
  initial: 'empty',
  states: {
    empty: { on: { ADD_ITEM: 'has_items' } },
    has_items: { on: { CHECKOUT: 'payment' } },
    payment: { on: { PAY: 'confirmed' } },
    confirmed: { type: 'final' },
  },
})
  .bindTool('cart.add_item', ['empty', 'has_items'], 'ADD_ITEM')
  .bindTool('cart.checkout', 'has_items', 'CHECKOUT')
  .bindTool('cart.pay', 'payment', 'PAY');
`;
const APP = `
import express from 'express';
import { fsmGate, sessionStore } from 'mcp-interlock';
import { checkout } from './checkout.js';
export const app = express();
app.use(express.json());
app.all('/mcp', sessionStore(), fsmGate(checkout), (req, res) => {
  const { id, method } = req.body;
  const serverInfo = { name: 'shop', version: '1' };
  const result =
    method === 'initialize'
      ? { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo }
      : { tools: [{ name: 'cart.pay', inputSchema: { type: 'object' } }] };
  const error = { code: -32601, message: 'Method not found' };
  if (id === undefined) res.status(202).end();
  else if (method === 'server/discover') res.json({ jsonrpc: '2.0', id, error });
  else res.json({ jsonrpc: '2.0', id, result });
});
`;

beforeAll(() => {
  consumer.linkInterlock();
  consumer.link('@types/express', '@types/node', 'express', 'tsx', 'vitest');
  consumer.write('package.json', '{ "type": "module" }');
  consumer.write('checkout.ts', CHECKOUT);
  consumer.write('app.ts', APP);
  for (const [index, block] of page.blocks('ts').entries())
    consumer.write(`block-${index}.test.ts`, block);
});

afterAll(() => consumer.remove());

describe('the tests of docs/build/testing.md', () => {
  const blocks = page.blocks('ts');
  const isNodes = (block: string): boolean => block.includes("'node:test'");
  const files = blocks.map((block, index) => ({ block, file: `block-${index}.test.ts` }));

  it('compile', async () => {
    const names = files.map(({ file }) => file);
    expect(await consumer.typeCheck(names, { skipLibCheck: true })).toBe('');
  }, 60_000);

  it('pass in Vitest', async () => {
    const names = files.filter(({ block }) => !isNodes(block)).map(({ file }) => file);
    const vitest = 'node_modules/vitest/vitest.mjs';
    const said = await consumer.node(vitest, 'run', '--reporter=json', ...names);
    expect(JSON.parse(said)).toMatchObject({ success: true, numPassedTests: names.length });
  }, 60_000);

  it('pass in node:test', async () => {
    const names = files.filter(({ block }) => isNodes(block)).map(({ file }) => file);
    const said = await consumer.node('--import', 'tsx', '--test', '--test-reporter=tap', ...names);
    expect(said).toMatch(new RegExp(`^# pass ${names.length}$`, 'm'));
  }, 60_000);
});
