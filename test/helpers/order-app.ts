import { type GateOptions, StateMachineGate } from '../../src/index.ts';
import { orderMachine } from '../workflow/charts.ts';
import { toolServer } from './tool-server.ts';

/** The tools of the order, bound to the statechart. Every state allows `look`. */
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

/** A scene of those tools, behind that gate or another one. */
export const ORDER_APP = {
  gate: { announce: true },
  shape: { mode: 'stateless' },
  makeServer: toolServer(['add', 'place', 'pay', 'pack', 'pause', 'resume', 'look']),
} as const;
