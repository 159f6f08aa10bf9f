/** Only the compiler checks this file, as it does `workflow.types.ts`. */

import {
  conversationKey,
  handleKey,
  managedHandle,
  principalKey,
  type RunKeyRequest,
  type RunKeyStrategy,
  runKey,
  sessionKey,
  sessionStore,
} from '../../src/index.ts';
import type {
  ConversationKeyOptions,
  RequestKey,
  RunIdOf,
  RunKeyOptions,
} from '../../src/session/run-key.ts';

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

const conversations: RequestKey = conversationKey();
const threads: RequestKey = runKey({
  name: 'thread',
  of({ http, principal, method, tool, meta }: RunKeyRequest) {
    const said: [string, string | undefined, string | undefined] = [method, tool, principal];
    void said;
    const { thread } = meta;
    // @ts-expect-error
    meta.thread = 'another';
    // @ts-expect-error
    const unchecked: string = thread;
    void unchecked;
    return typeof thread === 'string' ? thread : http.headers.authorization;
  },
});
sessionStore({
  key: [threads, conversationKey({ names: ['a/b'], anonymous: true }), sessionKey()],
});
sessionStore({ key: conversations });
const of: RunIdOf = () => undefined;
const options: RunKeyOptions & ConversationKeyOptions = { name: 'x', of, anonymous: false };
runKey(options);
const conversationRuns: string[] = [
  conversations.runKey('id'),
  threads.runKey('id', { issuer: 'i', subject: 's' }),
];
void conversationRuns;
// @ts-expect-error
runKey({ name: 'x', of: async () => 'id' });
// @ts-expect-error
runKey({ name: 'x', of: () => 7 });
// @ts-expect-error
runKey({ of });
// @ts-expect-error
conversationKey({ names: 'a/b' });
// @ts-expect-error
conversationKey({ of });
