/** Only the compiler checks this file, as it does `workflow.types.ts`. */
import type { Request } from 'express';
import { fsmGate, type ListCacheOptions } from '../../src/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';

const gate = checkoutGate();
fsmGate(gate, { listCache: true });
fsmGate(gate, { listCache: false });
fsmGate(gate, { listCache: undefined });
fsmGate(gate, { listCache: {} });
fsmGate(gate, { listCache: { ttlMs: 1_000, shared: true, vary: undefined } });
fsmGate(gate, { listCache: { vary: ({ headers }) => headers['x-plan']?.toString() } });
fsmGate(gate, { listCache: { vary: (req: Request) => req.get('x-plan') } });
const options: ListCacheOptions = { shared: false };
fsmGate(gate, { listCache: options });

// @ts-expect-error
fsmGate(gate, { listCache: 5_000 });
// @ts-expect-error
fsmGate(gate, { listCache: { ttl: 5_000 } });
// @ts-expect-error
fsmGate(gate, { listCache: { vary: () => 1 } });
// @ts-expect-error
fsmGate(gate, { listCache: { shared: 'everybody' } });
