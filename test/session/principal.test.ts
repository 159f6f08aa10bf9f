import type { IncomingMessage } from 'node:http';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Callers, identityOf } from '../../src/session/callers.ts';

const requestOf = (auth: unknown) => ({ auth, headers: {} }) as unknown as IncomingMessage;
const identified = (auth: unknown) => identityOf(requestOf(auth));

describe('the identity of a caller', () => {
  it.each([
    [
      'in the extra of the SDK',
      (claims: object) => ({ token: 't', clientId: 'c', scopes: [], extra: claims }),
    ],
    ['in a payload', (claims: object) => ({ header: {}, payload: claims, token: 't' })],
    ['on req.auth itself', (claims: object) => ({ ...claims, exp: 1 })],
  ])('is issuer and subject, %s', (_, place) => {
    const { principal, binding } = identified(place({ iss: 'i', sub: 's' }));
    expect(principal).toBeDefined();
    expect(binding).toBe(principal);
    expect(identified(place({ iss: 'i', sub: 's2' })).principal).not.toBe(principal);
    expect(identified(place({ iss: 'i2', sub: 's' })).principal).not.toBe(principal);
  });

  it('is the same wherever the claims stand', () => {
    const claims = { iss: 'i', sub: 's' };
    const ids = [{ extra: claims }, { payload: claims }, claims].map(
      (auth) => identified(auth).principal,
    );
    expect(new Set(ids).size).toBe(1);
  });

  it('does not depend on anything that changes when a token is refreshed', () => {
    fc.assert(
      fc.property(fc.string(), fc.array(fc.string()), fc.integer(), (token, scopes, expiresAt) => {
        const auth = {
          token,
          scopes,
          expiresAt,
          clientId: 'c',
          extra: { iss: 'i', sub: 's', jti: token },
        };
        expect(identified(auth)).toEqual(
          identified({ clientId: 'c', extra: { iss: 'i', sub: 's' } }),
        );
      }),
    );
  });

  it('is never equal to another one', () => {
    const claims = fc.record({
      iss: fc.string({ minLength: 1 }),
      sub: fc.string({ minLength: 1 }),
    });
    fc.assert(
      fc.property(claims, claims, (a, b) => {
        const alike = a.iss === b.iss && a.sub === b.sub;
        expect(identified({ extra: a }).principal === identified({ extra: b }).principal).toBe(
          alike,
        );
        // Nor is it equal to the binding by a client id alone.
        const clientId = identified({ extra: a }).principal;
        expect(identified({ clientId }).binding).not.toBe(clientId);
      }),
    );
  });

  it.each([
    ['a client id', { clientId: 'c' }],
    ['a subject without an issuer', { extra: { sub: 's' } }],
    ['a subject on req.auth itself', { sub: 's' }],
    ['a subject with an issuer that is no name', { extra: { iss: 1, sub: 's' } }],
  ])('binds a session, but names no principal, where there is only %s', (_, auth) => {
    const { principal, binding } = identified(auth);
    expect(principal).toBeUndefined();
    expect(binding).toEqual(expect.any(String));
  });

  it('of one subject without an issuer is not that of another one, nor of the client alone', () => {
    const ids = [
      { clientId: 'c' },
      { clientId: 'c', sub: 'a' },
      { clientId: 'c', payload: { sub: 'b' } },
    ];
    expect(new Set(ids.map((auth) => identified(auth).binding)).size).toBe(3);
  });

  it.each([
    undefined,
    null,
    'token',
    42,
    [],
    {},
    { clientId: '' },
    { clientId: 7, extra: null },
    { extra: { sub: '' } },
  ])('is nobody where req.auth is %j', (auth) => {
    expect(identified(auth)).toEqual({ principal: undefined, binding: undefined });
  });
});

describe('callers', () => {
  it('are warned of once for each way in which their names are weak', () => {
    const warnings: string[] = [];
    const callers = new Callers(undefined, (warning) => void warnings.push(warning));
    for (const auth of [
      { clientId: 'a' },
      {},
      { clientId: 'b' },
      {},
      undefined,
      { iss: 'i', sub: 's' },
    ]) {
      callers.identify(requestOf(auth));
    }
    expect(warnings).toEqual([
      expect.stringContaining('the client id'),
      expect.stringContaining('bound to no user'),
    ]);
  });

  it('are not looked for in req.auth where the app names them', () => {
    const callers = new Callers(
      () => 'ann',
      () => expect.unreachable(),
    );
    expect(callers.identify(requestOf({ clientId: 'a' }))).toEqual({
      principal: 'ann',
      binding: 'ann',
    });
  });
});
