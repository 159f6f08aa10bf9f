import { describe, expect, it } from 'vitest';
import { gateFetch } from '../../src/doors/fetch.ts';
import { fsmGate, StateMachineGate, sessionStore, stateSync } from '../../src/index.ts';

const handler = async (): Promise<Response> => new Response();
const sync = stateSync({ policies: [] });
const checkout = (id = 'checkout', tool = 'pay') =>
  new StateMachineGate({ id, initial: 'open', states: { open: {} } }).bindTool(tool, 'open');
/** `gateFetch()` as JavaScript calls it, without types. */
const gate = gateFetch as (...args: unknown[]) => unknown;

describe('gateFetch() refuses at once, and names what is wrong,', () => {
  it.each([
    ['a handler that is none', [{}, [sync]], 'the handler must be a function'],
    ['middlewares that are no list', [handler, sync], 'the middlewares must be an array'],
    ['an empty list', [handler, []], 'there must be a middleware; got an empty array'],
    [
      'a middleware of Express',
      [handler, [sync, () => {}]],
      'a middleware must be of interlock(), sessionStore(), fsmGate() or stateSync()',
    ],
    ['a gate', [handler, [checkout()]], 'got a StateMachineGate; write fsmGate(gate)'],
    [
      'a middleware of another copy',
      [handler, [Object.assign(() => {}, { [Symbol('mcp-interlock.stage')]: {} })]],
      'got a function of another copy of mcp-interlock: the app must have one version alone',
    ],
    ['no middleware at all', [handler, [undefined]], 'got undefined'],
    ['an option that does not exist', [handler, [sync], { atuh: () => {} }], '"auth"'],
    ['an option of another type', [handler, [sync], { auth: 'ann' }], 'auth'],
  ])('%s', (_, args, message) => {
    expect(() => gate(...args)).toThrow(
      expect.objectContaining({
        code: 'ERR_INTERLOCK_CONFIG',
        message: expect.stringContaining(message),
      }),
    );
  });

  it('but takes undefined options', () => {
    expect(gateFetch(handler, [sync], { auth: undefined })).toBeTypeOf('function');
  });
});

describe('gateFetch() refuses, before any request,', () => {
  const other = () => fsmGate(checkout('other', 'ship'));
  it.each([
    [
      'two gates of one id',
      [sessionStore(), fsmGate(checkout()), other(), fsmGate(checkout())],
      'two gates of the id "checkout" are mounted on one route; give each its own id',
    ],
    [
      'a gate that binds the status tool of another one',
      [fsmGate(checkout(), { statusTool: 'ship' }), other()],
      'the gate "other" binds "ship", which is the status tool of another gate on the route',
    ],
    [
      'a sessionStore() behind the gate that needs it',
      [fsmGate(checkout()), sessionStore()],
      'Mount it once, and first',
    ],
    ['a second sessionStore()', [sessionStore(), sessionStore()], 'Mount it once, and first'],
  ])('%s', (_, middlewares, message) => {
    expect(() => gate(handler, middlewares)).toThrow(
      expect.objectContaining({
        code: 'ERR_INTERLOCK_MOUNT',
        message: expect.stringContaining(message),
      }),
    );
  });

  it('but takes stateSync() in any place, and a middleware twice', () => {
    const [sessions, first] = [sessionStore(), fsmGate(checkout())];
    const list = [sync, sessions, sync, first, other(), sessions, first];
    expect(gate(handler, list)).toBeTypeOf('function');
  });
});
