/** Only the compiler checks this file, as it does `workflow.types.ts`. */
import {
  handleKey,
  managedHandle,
  principalKey,
  type RunKeyStrategy,
  sessionKey,
  sessionStore,
} from '../../src/index.ts';

const baskets = handleKey('basket_id', { createdBy: 'create_basket' });
const managed = managedHandle({ start: 'checkout.start', argument: 'workflow_run' });

sessionStore({ key: sessionKey() });
sessionStore({ key: [sessionKey(), baskets, managed, principalKey()] });
sessionStore({ key: [sessionKey(), baskets] as const });
sessionStore({ key: undefined });
const strategies: readonly RunKeyStrategy[] = [sessionKey(), principalKey(), baskets, managed];
sessionStore({ key: strategies });

// @ts-expect-error
sessionStore({ key: 'session' });
// @ts-expect-error
sessionStore({ key: sessionKey });
// @ts-expect-error
handleKey('basket_id');
// @ts-expect-error
handleKey('basket_id', { created: 'create_basket' });
// @ts-expect-error
handleKey(7, { createdBy: 'create_basket' });
handleKey('basket_id', { createdBy: ['a', 'b'] as const, field: 'id' });
// @ts-expect-error
managedHandle({ start: 'checkout.start' });
// @ts-expect-error
managedHandle('checkout.start', 'workflow_run');

const keys: string[] = [
  sessionKey().runKey('id'),
  principalKey().runKey('principal'),
  principalKey().runKey({ issuer: 'i', subject: 's' }),
  baskets.runKey(7, { issuer: 'i', subject: 's' }),
  managed.runKey('handle', 'principal'),
];
void keys;
// @ts-expect-error
principalKey().runKey({ subject: 's' });
// @ts-expect-error
managed.runKey(7);
