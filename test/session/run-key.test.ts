import { describe, expect, it } from 'vitest';
import {
  conversationKey,
  handleKey,
  InterlockError,
  managedHandle,
  principalKey,
  runKey,
  sessionKey,
  sessionStore,
} from '../../src/index.ts';

/** The error that is thrown, which must be an InterlockError. */
function mistake(make: () => unknown): string {
  try {
    make();
  } catch (error) {
    expect(error).toBeInstanceOf(InterlockError);
    expect(error).toMatchObject({ code: 'ERR_INTERLOCK_CONFIG' });
    return (error as InterlockError).message;
  }
  throw new Error('nothing was thrown');
}

const made = { createdBy: 'create_basket' };
const thread = (name = 'thread') => runKey({ name, of: () => undefined });

// TypeScript prevents each of these. Plain JavaScript does not.
const wrong = <T>(value: unknown): T => value as T;

describe('a malformed run key', () => {
  it.each<[string, () => unknown, RegExp]>([
    [
      'handleKey() without a name',
      () => handleKey('', made),
      /handleKey\(\): expected the name of an argument, got ""/,
    ],
    ['handleKey() of a number', () => handleKey(wrong(7), made), /got 7/],
    [
      'handleKey() without options',
      () => handleKey('a', wrong(undefined)),
      /handleKey\(\).+createdBy/s,
    ],
    [
      'handleKey() created by nothing',
      () => handleKey('a', { createdBy: [] }),
      /handleKey\(\).+createdBy/s,
    ],
    [
      'handleKey() with a misspelt option',
      () => handleKey('a', wrong({ createdby: 'x' })),
      /createdby.+createdBy/s,
    ],
    [
      'managedHandle() without options',
      () => managedHandle(wrong(undefined)),
      /managedHandle\(\).+start/s,
    ],
    [
      'managedHandle() without an argument',
      () => managedHandle(wrong({ start: 's' })),
      /managedHandle\(\).+argument/s,
    ],
    [
      'managedHandle() with an empty name',
      () => managedHandle({ start: '', argument: 'a' }),
      /managedHandle\(\).+start/s,
    ],
    [
      'managedHandle() with a misspelt option',
      () => managedHandle(wrong({ start: 's', argument: 'a', describtion: 'x' })),
      /describtion.+description/s,
    ],
    [
      'conversationKey() with one name in place of a list',
      () => conversationKey({ names: wrong('thread') }),
      /conversationKey\(\): names/,
    ],
    [
      'conversationKey() with an empty name',
      () => conversationKey({ names: [''] }),
      /conversationKey\(\)/,
    ],
    [
      'conversationKey() with a misspelt option',
      () => conversationKey(wrong({ anonymus: true })),
      /anonymus.+anonymous/s,
    ],
    ['runKey() without a function', () => runKey(wrong({ name: 'thread' })), /runKey\(\).+of/s],
    [
      'runKey() with a space in its name',
      () => runKey({ name: 'a thread', of: () => undefined }),
      /runKey\(\): name.+letters, digits/,
    ],
    [
      'runKey() under the name of conversations',
      () => runKey({ name: 'conversation', of: () => undefined }),
      /"conversation" is that of conversationKey\(\)/,
    ],
  ])('is a mistake with a name: %s', (_what, make, message) => {
    expect(mistake(make)).toMatch(message);
  });

  it.each<[string, unknown]>([
    ['no key', []],
    ['a text', 'session'],
    ['the factory itself', principalKey],
    ['what only looks like one', { kind: 'session' }],
    ['a list with something else in it', [sessionKey(), 'principal']],
    ['one twice', [sessionKey(), sessionKey()]],
    ['two of conversations', [conversationKey(), conversationKey({ anonymous: true })]],
    ['two of one name', [thread(), thread()]],
    ['two of one handle', [handleKey('a', made), handleKey('a', { createdBy: 'x' })]],
    [
      'two that are managed',
      [managedHandle({ start: 's', argument: 'a' }), managedHandle({ start: 't', argument: 'b' })],
    ],
    ['null', null],
  ])('is no key of sessionStore(): %s', (_what, key) => {
    expect(mistake(() => sessionStore({ key: wrong(key) }))).toMatch(
      /sessionStore\(\): key: expected sessionKey\(\), principalKey\(\), conversationKey\(\), runKey\(\), handleKey\(\) or managedHandle\(\), or a list of different ones, got/,
    );
  });

  it('is an error where two keys name the same argument', () => {
    const key = [handleKey('run', made), managedHandle({ start: 's', argument: 'run' })];
    expect(mistake(() => sessionStore({ key }))).toMatch(/different ones/);
  });

  it('means the default where it is explicitly undefined', () => {
    expect(() => sessionStore({ key: undefined })).not.toThrow();
    expect(handleKey('a', { ...made, field: undefined }).field).toBe('a');
    expect(
      managedHandle({ start: 's', argument: 'a', description: undefined }).description,
    ).not.toBe('');
  });
});

describe('the key of a run', () => {
  it('differs by its kind, its argument, its owner and its handle', () => {
    const alice = { issuer: 'i', subject: 'alice' };
    const [a, b] = [handleKey('a', made), handleKey('b', made)];
    const keys = [
      sessionKey().runKey('x'),
      conversationKey().runKey('x'),
      conversationKey().runKey('x', 'alice'),
      conversationKey().runKey('x', alice),
      conversationKey().runKey('y', alice),
      thread().runKey('x', alice),
      thread('other').runKey('x', alice),
      thread('other').runKey('x'),
      principalKey().runKey('x'),
      principalKey().runKey(alice),
      a.runKey('x'),
      b.runKey('x'),
      a.runKey('x', 'alice'),
      a.runKey('x', alice),
      a.runKey('y', alice),
      a.runKey('x","y', 'alice'),
      a.runKey('x', 'alice","x'),
    ];
    expect(new Set(keys).size).toBe(keys.length);
  });
});
