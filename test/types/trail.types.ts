/** Only the compiler checks this file, as it does `workflow.types.ts`. */
import type { Tool } from '@modelcontextprotocol/client';
import type { Tool as ToolOfV1 } from '@modelcontextprotocol/sdk/types.js';
import { type TryFailure, trailToPrompts } from '../../packages/check/src/index.ts';
import { fsmGate, type TrailOptions } from '../../src/index.ts';
import type { Json, TrailEntry } from '../../src/stores/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';

const gate = checkoutGate();
declare const trail: readonly TrailEntry[];
declare const older: readonly ToolOfV1[];
declare const newer: readonly Tool[];

// --- why a try failed ---------------------------------------------------------------------------

fsmGate(gate, { trail: { errors: undefined } });
fsmGate(gate, { trail: { errors: () => undefined } });
fsmGate(gate, { trail: { errors: ({ content }) => content?.map(({ text = '' }) => text) } });
fsmGate(gate, { trail: { errors: ({ structuredContent }) => structuredContent?.errors } });
fsmGate(gate, { trail: { errors: ({ code = 0, message = '' }) => [code, message] } });
fsmGate(gate, { trail: { errors: (_, { tool, kind }) => `${tool}: ${kind}` } });
const options: TrailOptions = { errors: ({ data }, { kind }) => (kind === 'rpc_error' ? data : 1) };
fsmGate(gate, { trail: options });

// @ts-expect-error
fsmGate(gate, { trail: { errors: async () => 'late' } });
// @ts-expect-error
fsmGate(gate, { trail: { errors: () => new Date() } });
// @ts-expect-error
fsmGate(gate, { trail: { errors: (_, { kind }) => kind === 'guard' } });
// @ts-expect-error
fsmGate(gate, { trail: { error: () => 'no' } });

// --- a conversation -----------------------------------------------------------------------------

for (const tools of [older, newer, [{ name: 'cart.pay' }], undefined]) {
  const { messages, output } = trailToPrompts(gate, trail, { tools });
  const failures: TryFailure[] = messages.flatMap(({ failure }) => failure ?? []);
  const errors: readonly Json[] = failures.flatMap((failure) => failure.errors);
  const type: 'object' | undefined = output?.oneOf[0]?.properties.arguments.type;
  const keyword: unknown = output?.oneOf[0]?.properties.arguments.properties;
  void [errors, type, keyword];
}

// @ts-expect-error
trailToPrompts(gate, trail, { tools: ['cart.pay'] });
// @ts-expect-error
trailToPrompts(gate, trail, { tools: [{ name: 'cart.pay', inputSchema: 'object' }] });
