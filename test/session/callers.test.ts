import type { IncomingMessage } from 'node:http';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Callers, identityOf, type Owner, Quotas, type Seat } from '../../src/session/callers.ts';
import { few } from '../helpers/few.ts';

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

const LIMITS = { maxSessionsPerPrincipal: 3, maxSessionsPerClient: 4, onWarning() {} };

/**
 * A session of the plain rule: its owner, whether it is free, and when that was said last.
 */
interface Known {
  readonly owner: Owner;
  readonly seat: Seat<Known>;
  free: boolean;
  at: number;
}

/** The rule in its plainest form: each question looks at all sessions. */
class Model {
  readonly sessions: Known[] = [];

  #isSame(owner: Owner, other: Owner): boolean {
    if (owner.principal !== undefined) return other.principal === owner.principal;
    return other.principal === undefined && other.client === owner.client;
  }

  isFull(owner: Owner): boolean {
    const { maxSessionsPerPrincipal, maxSessionsPerClient } = LIMITS;
    if (owner.principal === undefined && owner.client === undefined) return false;
    const most = owner.principal === undefined ? maxSessionsPerClient : maxSessionsPerPrincipal;
    return this.sessions.filter((each) => this.#isSame(owner, each.owner)).length >= most;
  }

  /** The session that makes way for the same caller's next one. */
  next(owner: Owner): Known | undefined {
    if (!this.isFull(owner)) return undefined;
    return this.sessions
      .filter((each) => each.free && this.#isSame(owner, each.owner))
      .sort((a, b) => a.at - b.at)[0];
  }

  isBarred(owner: Owner): boolean {
    return this.isFull(owner) && this.next(owner) === undefined;
  }
}

const name = (...names: string[]) => fc.option(fc.constantFrom(...names), { nil: undefined });
const owners = fc.record({
  principal: name('ann', 'bob', '__proto__'),
  client: name('192.0.2.1', 'ann', ''),
});
const step = fc.record({
  owner: owners,
  act: fc.constantFrom('open', 'open', 'open', 'adopt', 'withdraw', 'offer', 'leave', 'make room'),
  pick: fc.nat(),
});

describe('the sessions of principals and clients', () => {
  it('count, and make way, as the plainest rule says', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
        const quotas = new Quotas<Known>(LIMITS);
        const model = new Model();
        let time = 0;
        const sit = (owner: Owner, seat: Seat<Known>): void => {
          const known: Known = { owner, seat, free: true, at: ++time };
          seat.take(known);
          model.sessions.push(known);
        };
        for (const { owner, act, pick } of steps) {
          const picked = model.sessions[pick % Math.max(model.sessions.length, 1)];
          expect(quotas.isBarred(owner)).toBe(model.isBarred(owner));
          if (act === 'adopt') sit(owner, quotas.seat(owner));
          if (act === 'open') {
            const seat = quotas.reserve(owner);
            expect(seat === undefined).toBe(model.isFull(owner));
            if (seat !== undefined) sit(owner, seat);
          }
          if (act === 'make room') {
            // Each is asked once, in the order of use. Only the second one that is asked ends.
            const ended: Known[] = [];
            const seat = await quotas.makeRoom(owner, async (known) => {
              expect(known).toBe(model.next(owner));
              known.free = false;
              if (ended.push(known) === 1) return;
              known.seat.leave();
              model.sessions.splice(model.sessions.indexOf(known), 1);
            });
            expect(seat === undefined).toBe(model.isFull(owner));
            if (seat === undefined) expect(model.next(owner)).toBeUndefined();
            else sit(owner, seat);
          }
          if (picked === undefined) continue;
          if (act === 'leave') {
            picked.seat.leave();
            picked.seat.leave();
            picked.seat.offer();
            model.sessions.splice(model.sessions.indexOf(picked), 1);
          }
          if (act === 'offer') picked.at = ++time;
          if (act === 'offer' || act === 'withdraw') {
            picked.free = act === 'offer';
            picked.seat[act]();
            expect(picked.seat.isFree).toBe(picked.free);
          }
        }
      }),
      few(125),
    );
  });

  it('may make way later where its end failed at first', async () => {
    const quotas = new Quotas<string>({ ...LIMITS, maxSessionsPerPrincipal: 1 });
    const ann = { principal: 'ann', client: undefined };
    const seat = quotas.seat(ann);
    seat.take('first');
    const failure = new Error('the store is down');
    await expect(quotas.makeRoom(ann, () => Promise.reject(failure))).rejects.toBe(failure);
    const asked: string[] = [];
    const made = await quotas.makeRoom(ann, async (holder) => {
      asked.push(holder);
      seat.leave();
    });
    expect([made === undefined, asked]).toEqual([false, ['first']]);
  });

  it('count from when they are about to be opened', () => {
    const quotas = new Quotas<object>(LIMITS);
    const ann = { principal: 'ann', client: undefined };
    const seats = [1, 2, 3].map(() => quotas.reserve(ann));
    expect(seats).not.toContain(undefined);
    expect([quotas.reserve(ann), quotas.isBarred(ann)]).toEqual([undefined, true]);
    seats[0]?.leave();
    expect(quotas.reserve(ann)).toBeDefined();
  });
});
