import { describe, expect, it } from 'vitest';
import type { Exchange, LedgerLine, OutsideCall, TrailEntry } from '../../lab/checker/evidence.ts';
import type { RuleSet } from '../../lab/checker/rules.ts';
import { type UsesEvidence, type UsesFaultKind, usesFaults } from '../../lab/checker/uses.ts';

const RULES: RuleSet = {
  rules: {
    draw: { limit: { times: 2 } },
    spend: { limit: { sum: 'amount', max: 0.3 } },
    book: { limit: { times: 1, same: ['item'] }, after: 'look', notAfter: 'cancel' },
    ping: { limit: { times: 1, within: 1_000 } },
    pay: { after: { tool: 'approve', consumes: true } },
    refund: { after: { tool: 'approve', consumes: true } },
    charge: { limit: { times: 2 } },
    cash: { after: { tool: 'approve', consumes: true } },
    release: { after: { tool: 'sign', times: 2, distinct: 'by', consumes: true } },
    guess: { after: { tool: 'code', consumes: 'calls' } },
    approve: {},
    sign: {},
    code: {},
    cancel: {},
  },
};

/** What happened in a run, in order: each fact is ten milliseconds later than the one before. */
class Story {
  readonly #exchanges: Exchange[] = [];
  readonly #ledger: LedgerLine[] = [];
  readonly #outside: OutsideCall[] = [];
  readonly #quiet: UsesEvidence['quiet'][number][] = [];
  #trail: TrailEntry[] | undefined;
  #at = 1_000;
  #calls = 0;

  /** So much time passes. */
  pass(ms: number): this {
    this.#at += ms;
    return this;
  }

  send(tool: string, args: object = {}): Exchange {
    const id = ++this.#calls;
    const call = `call ${id}`;
    const params = { name: tool, arguments: args, _meta: { 'checker/call': call } };
    const request = { jsonrpc: '2.0', id, method: 'tools/call', params };
    const sent = this.#next();
    const exchange: Exchange = { call, run: 'a run', sent, request, messages: [] };
    this.#exchanges.push(exchange);
    return exchange;
  }

  begin({ call, request }: Exchange, key = call): LedgerLine {
    const { name: tool, arguments: args } = request.params;
    const attempt = `attempt ${this.#ledger.length}`;
    const line = { attempt, server: 'a', run: 'a run', tool, args, call, key };
    const begun: LedgerLine = { phase: 'start', at: this.#next(), ...line };
    this.#ledger.push(begun);
    return begun;
  }

  end(begun: LedgerLine, outcome: 'succeeded' | 'failed' = 'succeeded'): void {
    this.#ledger.push({ ...begun, phase: 'end', at: this.#next(), outcome });
  }

  show(exchange: Exchange, { attempt }: LedgerLine, isError = false): void {
    this.#answer(exchange, { content: [{ type: 'text', text: attempt }], isError });
  }

  refuse(exchange: Exchange, reason: string): void {
    const _meta = { 'mcp-interlock/refusal': { workflow: 'rules', reason } };
    this.#answer(exchange, { isError: true, content: [], _meta });
  }

  break(exchange: Exchange): void {
    exchange.broke = true;
    exchange.ended = this.#next();
  }

  /** A whole call that goes through. */
  does(tool: string, args: object = {}, outcome: 'succeeded' | 'failed' = 'succeeded'): this {
    const exchange = this.send(tool, args);
    const begun = this.begin(exchange);
    this.end(begun, outcome);
    this.show(exchange, begun, outcome === 'failed');
    return this;
  }

  isRefused(tool: string, reason: string, args: object = {}): this {
    this.refuse(this.send(tool, args), reason);
    return this;
  }

  /** A call whose process dies in its handler, and the key that it had. */
  dies(tool: string, args: object = {}): string {
    const exchange = this.send(tool, args);
    const { key } = this.begin(exchange);
    this.break(exchange);
    return key;
  }

  resolve(key: string, tool: string, outcome: 'succeeded' | 'failed'): this {
    const does = { kind: 'resolve', key, tool, outcome } as const;
    const asked = this.#next();
    const call = { run: 'a run', machine: 'rules', asked, answered: this.#next(), does, did: true };
    this.#outside.push(call);
    return this;
  }

  isQuiet(): this {
    this.#quiet.push({ run: 'a run', at: this.#next() });
    return this;
  }

  trailHas(...tools: readonly string[]): this {
    this.#trail = tools.map((tool, at) => {
      return {
        seq: at + 1,
        version: at + 1,
        attempt: 1,
        from: '',
        to: '',
        tool,
        outcome: 'succeeded',
      };
    });
    return this;
  }

  get faults(): UsesFaultKind[] {
    const found = usesFaults({
      ...{ rules: RULES, retried: ['charge', 'cash'], lookups: ['look'], runs: ['a run'] },
      ...{ exchanges: this.#exchanges, ledger: this.#ledger, outside: this.#outside },
      trails: this.#trail === undefined ? [] : [{ run: 'a run', entries: this.#trail }],
      quiet: this.#quiet,
    });
    return found.map(({ kind }) => kind);
  }

  #answer(exchange: Exchange, result: object): void {
    const at = this.#next();
    Object.assign(exchange, { status: 200, ended: at });
    exchange.messages.push({ at, message: { jsonrpc: '2.0', id: exchange.request.id, result } });
  }

  #next(): number {
    this.#at += 10;
    return this.#at;
  }
}

const story = () => new Story();

describe('a run that kept its rules has no fault:', () => {
  it.each<[string, Story]>([
    ['the last use', story().does('draw').does('draw').isRefused('draw', 'limit')],
    [
      'the last euro, in decimals',
      story()
        .does('spend', { amount: 0.1 })
        .does('spend', { amount: 0.2 })
        .isRefused('spend', 'limit', { amount: 0.01 }),
    ],
    [
      'the one approval',
      story().does('approve').does('pay').isRefused('refund', 'guard').isRefused('pay', 'state'),
    ],
    ['a failure uses nothing', story().does('approve').does('pay', {}, 'failed').does('refund')],
    [
      'a failure uses what it takes to call',
      story().does('code').does('guess', {}, 'failed').isRefused('guess', 'guard'),
    ],
    [
      'two people sign',
      story()
        .does('sign', { by: 'ada' })
        .does('sign', { by: 'ada' })
        .isRefused('release', 'guard')
        .does('sign', { by: 'bob' })
        .does('release')
        .isRefused('release', 'guard'),
    ],
    [
      'a window that has passed',
      story().does('ping').isRefused('ping', 'limit').pass(1_100).does('ping'),
    ],
    [
      'a lookup, and what must not come before',
      story()
        .isRefused('book', 'state', { item: 'cup' })
        .does('look')
        .does('book', { item: 'cup' })
        .isRefused('book', 'limit', { item: 'cup' })
        .does('book', { item: 'box' })
        .does('cancel')
        .isRefused('book', 'guard', { item: 'hat' }),
    ],
  ])('%s', (_, told) => {
    expect(told.faults).toEqual([]);
  });

  it('a step that is repeated with its key is one use', () => {
    const told = story().does('charge');
    const key = told.dies('charge', { step: 2 });
    const again = told.send('charge', { step: 2 });
    const begun = told.begin(again, key);
    told.end(begun);
    told.show(again, begun);
    expect(told.isRefused('charge', 'limit').trailHas('charge', 'charge').faults).toEqual([]);
  });

  it('a step that is repeated has what it uses up since its first try', () => {
    const told = story().does('approve').does('approve');
    const key = told.dies('cash', { step: 1 });
    told.does('pay').does('approve').does('refund');
    const again = told.send('cash', { step: 1 });
    const begun = told.begin(again, key);
    told.end(begun);
    told.show(again, begun);
    expect(told.isRefused('pay', 'state').faults).toEqual([]);
  });

  it('a call waits for one whose outcome is unknown, and gets the use that it did not take', () => {
    const told = story().does('draw');
    const key = told.dies('draw');
    told.isRefused('draw', 'limit').resolve(key, 'draw', 'failed').does('draw');
    expect(told.isRefused('draw', 'limit').faults).toEqual([]);
  });

  it('a call whose process died before its handler may have had the last use for a while', () => {
    const told = story().does('draw');
    told.break(told.send('draw'));
    told.isRefused('draw', 'limit').isQuiet().does('draw');
    expect(told.faults).toEqual([]);
  });

  it('a call that was resolved as failed uses up what a call uses up', () => {
    const told = story().does('code');
    told.break(told.send('guess'));
    told.resolve('a key', 'guess', 'failed').isQuiet().isRefused('guess', 'guard');
    expect(told.faults).toEqual([]);
  });

  it('one that was about to be refused, as its process died, used nothing', () => {
    const told = story().does('code').does('guess');
    told.break(told.send('guess'));
    told.resolve('a key', 'guess', 'failed').isQuiet().does('code').does('guess');
    expect(told.faults).toEqual([]);
  });
});

describe('a planted fault is found:', () => {
  it.each<[string, UsesFaultKind, Story]>([
    ['one use too many', 'exceeded', story().does('draw').does('draw').does('draw')],
    [
      'a cent too many',
      'exceeded',
      story().does('spend', { amount: 0.1 }).does('spend', { amount: 0.21 }),
    ],
    [
      'one use too many of one value',
      'exceeded',
      story().does('look').does('book', { item: 'cup' }).does('book', { item: 'cup' }),
    ],
    ['one use too many in a window', 'exceeded', story().does('ping').pass(500).does('ping')],
    [
      'an approval that two tools used',
      'used-twice',
      story().does('approve').does('pay').does('refund'),
    ],
    ['an approval that came later', 'used-twice', story().does('pay').does('approve')],
    [
      'one person who signed twice',
      'used-twice',
      story().does('sign', { by: 'ada' }).does('sign', { by: 'ada' }).does('release'),
    ],
    [
      'a code that was guessed twice',
      'used-twice',
      story().does('code').does('guess', {}, 'failed').does('guess'),
    ],
    ['a call without what comes before it', 'not-allowed', story().does('book', { item: 'cup' })],
    [
      'a call after what must not come before it',
      'not-allowed',
      story().does('look').does('cancel').does('book', { item: 'cup' }),
    ],
    ['a lost use', 'lost', story().does('draw').isRefused('draw', 'limit')],
    ['a lost approval', 'lost', story().does('approve').isRefused('pay', 'guard')],
    [
      'an approval that a failure has lost',
      'lost',
      story().does('approve').does('pay', {}, 'failed').isRefused('pay', 'state'),
    ],
    [
      'a lost euro',
      'lost',
      story().does('spend', { amount: 0.1 }).isRefused('spend', 'limit', { amount: 0.2 }),
    ],
    [
      'a window that does not pass',
      'lost',
      story().does('ping').pass(1_100).isRefused('ping', 'limit'),
    ],
    [
      'a refusal that names another reason',
      'wrong-reason',
      story().does('draw').does('draw').isRefused('draw', 'guard'),
    ],
    ['a use that the trail lacks', 'trail', story().does('draw').does('draw').trailHas('draw')],
    ['a use that only the trail knows', 'trail', story().does('draw').trailHas('draw', 'draw')],
  ])('%s', (_, kind, told) => {
    expect(told.faults).toContain(kind);
  });

  it('a use that was lost with a process that died in it', () => {
    const told = story().does('draw');
    const key = told.dies('draw');
    told.resolve(key, 'draw', 'failed').isQuiet().isRefused('draw', 'limit');
    expect(told.faults).toEqual(['lost']);
  });

  it('a step that must not be repeated, and ran again with its key', () => {
    const told = story();
    const key = told.dies('draw');
    const again = told.send('draw');
    told.end(told.begin(again, key));
    expect(told.faults).toEqual(['ran-twice']);
  });
});
