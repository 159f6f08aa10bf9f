import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import * as z from 'zod';
import {
  type Clock,
  fsmGate,
  type GateOptions,
  StateMachineGate,
  type StateStore,
  sessionStore,
} from '../../src/index.ts';
import { orderMachine } from '../workflow/charts.ts';
import { startUpstream, type Upstream } from './upstream.ts';

/** The tools of the order, bound to the statechart: `look` is for everybody. */
export function orderGate(options: GateOptions = {}) {
  return new StateMachineGate(orderMachine, { onAction: () => {}, ...options })
    .bindTool(
      'add',
      { tag: 'open' },
      { success: ({ args }) => ({ type: 'ADD', payload: { price: Number(args.sum) } }) },
    )
    .bindTool('place', 'cart', 'PLACE')
    .bindTool(
      'pay',
      { tag: 'money' },
      {
        success: ({ args }) => ({ type: 'PAID', payload: { amount: Number(args.sum) } }),
        failure: 'DECLINED',
      },
    )
    .bindTool('pack', 'placed.packing.waiting', 'PACK')
    .bindTool('pause', 'placed', 'PAUSE')
    .bindTool('resume', 'paused', 'RESUME');
}

/** An MCP server with those tools, behind a gate. Each does nothing, well or, with `fail`, badly. */
export function startOrderApp(
  gate: StateMachineGate,
  store: StateStore,
  options: { readonly clock?: Clock; readonly onError?: (error: unknown) => void } = {},
): Promise<Upstream> {
  return startUpstream({
    shape: { mode: 'stateless' },
    middlewares: [
      sessionStore({ store, ...options }),
      fsmGate(gate, { announce: true, ...options }),
    ],
    makeServer: (ledger) => {
      const server = new McpServer({ name: 'order', version: '1.0.0' });
      for (const name of ['add', 'place', 'pay', 'pack', 'pause', 'resume', 'look']) {
        const inputSchema = { sum: z.number().optional(), fail: z.boolean().optional() };
        server.registerTool(name, { inputSchema }, ({ fail }) => {
          ledger.calls.push(name);
          return { content: [{ type: 'text', text: `${name} done` }], isError: fail === true };
        });
      }
      return server;
    },
  });
}
