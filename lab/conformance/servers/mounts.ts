import type { RequestHandler } from 'express';
import {
  fsmGate,
  type SessionStoreOptions,
  StateMachineGate,
  sessionStore,
  stateSync,
} from '../../../src/index.ts';
import type { AtomicStateStore } from '../../../src/stores/index.ts';
import { NEVER_CALLED } from './tools.ts';

/**
 * `bare` is the server alone, `empty` has a gate that binds nothing, `idle` one that binds what the
 * suite never calls. The one of `observed` would refuse each call, and only observes.
 */
export const COLUMNS = ['bare', 'empty', 'idle', 'observed'] as const;
export type Column = (typeof COLUMNS)[number];

export function middlewaresOf(column: Column, store: AtomicStateStore): RequestHandler[] {
  const sessions: SessionStoreOptions = { store };
  switch (column) {
    case 'bare':
      return [];
    case 'empty':
      return [sessionStore(sessions), fsmGate(door()), stateSync({ policies: [] })];
    case 'idle': {
      const gate = door().bindTool(NEVER_CALLED, ['open'], 'CLOSE');
      const policies = [{ match: NEVER_CALLED, cacheControl: 'no-store' as const }];
      return [sessionStore(sessions), fsmGate(gate), stateSync({ policies })];
    }
    case 'observed':
      return [
        sessionStore(sessions),
        fsmGate(door().bindTool('*', ['open'], 'CLOSE'), { enforce: false }),
      ];
  }
}

/** Nothing that a client does opens it, so the tool is never available. */
function door() {
  return new StateMachineGate({
    id: 'door',
    initial: 'closed',
    states: { closed: { on: { OPEN: 'open' } }, open: { on: { CLOSE: 'closed' } } },
  });
}
