import { describe, expect, it } from 'vitest';
import { gateFetch } from '../../src/fetch.ts';
import { stateSync } from '../../src/index.ts';

const handler = async (): Promise<Response> => new Response();
const sync = stateSync({ policies: [] });
/** As JavaScript calls it, whose compiler refuses nothing. */
const gate = gateFetch as (...args: unknown[]) => unknown;

describe('gateFetch() refuses, at once and with what is wrong,', () => {
  it.each([
    ['a handler that is none', [{}, [sync]], 'the handler must be a function'],
    ['middlewares that are no list', [handler, sync], 'the middlewares must be an array'],
    ['an empty list', [handler, []], 'there must be a middleware; got an empty array'],
    [
      'a middleware of Express',
      [handler, [sync, () => {}]],
      'a middleware must be of sessionStore(), fsmGate() or stateSync()',
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

  it('but takes options that are undefined', () => {
    expect(gateFetch(handler, [sync], { auth: undefined })).toBeTypeOf('function');
  });
});
