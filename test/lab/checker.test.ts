import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { check, type FaultKind } from '../../lab/checker/check.ts';
import { DEFECT_NAMES, DEFECTS } from '../../lab/checker/defects.ts';
import type {
  Evidence,
  Exchange,
  LedgerLine,
  OutsideCall,
  SwitchCall,
  TrailEntry,
  TrailFreeze,
} from '../../lab/checker/evidence.ts';
import { SHOP, SHOP_TOOLS } from '../../lab/checker/machines.ts';
import { playScene } from '../../lab/checker/scene.ts';
import { runToEnd } from '../helpers/program.ts';

/** A new one each time; it is in the name of each test that plays by it. */
const SEED = Math.floor(Math.random() * 1e9);

describe('the checker', { timeout: 60_000 }, () => {
  it(`finds nothing in a scene around the real gate, with seed ${SEED}`, async () => {
    const asked = ['freeze', 'look', 'record', 'resolve', 'send', 'unfreeze'];
    const done = new Set<string>();
    // Not each scene has an event from outside that some state handles.
    for (let seed = SEED; done.size < asked.length && seed < SEED + 6; seed++) {
      const { evidence, faults } = await playScene({ seed, rounds: 20 });
      expect(faults).toEqual([]);
      // It had something to look at: moves in each run, and streams of both kinds.
      for (const { does, did } of evidence.outside) if (did) done.add(does.kind);
      expect(evidence.switches).toHaveLength(4);
      const [session, eve, dan, ...others] = evidence.trails;
      expect([session, eve, dan].map((each) => each?.now?.status)).toEqual([
        'held',
        'idle',
        'idle',
      ]);
      expect(others.every(({ moves }) => moves.length > 3)).toBe(true);
      expect(new Set(evidence.streams.map(({ kind }) => kind)).size).toBe(2);
    }
    expect([...done].sort()).toEqual(asked);
  });

  it.each(DEFECT_NAMES)('finds the planted defect %s', async (name) => {
    const found = new Set<FaultKind>();
    // Four rounds find most. An event from outside waits ten seconds for a claim that stays.
    for (const rounds of name === 'keeps-claims' ? [2] : [4, 12]) {
      if (found.has(DEFECTS[name].found)) break;
      const { faults } = await playScene({ seed: 1, rounds, surroundings: DEFECTS[name] });
      for (const { kind } of faults) found.add(kind);
    }
    expect([...found]).toContain(DEFECTS[name].found);
  });

  it('is shown a defect of each kind', () => {
    const kinds: Record<FaultKind, true> = {
      'illegal-execution': true,
      'unsaved-success': true,
      'wrong-list': true,
      'wrong-refusal': true,
      'lost-event': true,
      'wrong-look': true,
      key: true,
      'ran-twice': true,
      'foreign-run': true,
      overlap: true,
      trail: true,
      'committed-twice': true,
      phantom: true,
      lost: true,
      stuck: true,
      untold: true,
      'wrong-answer': true,
      frozen: true,
    };
    const shown = new Set<string>(DEFECT_NAMES.map((name) => DEFECTS[name].found));
    expect(Object.keys(kinds).filter((kind) => !shown.has(kind))).toEqual([]);
  });
});

/** A run's story, told in order: each fact is a moment later than the one before it. */
class Story {
  readonly #exchanges: Exchange[] = [];
  readonly #ledger: LedgerLine[] = [];
  readonly #outside: OutsideCall[] = [];
  readonly #stalls: NonNullable<Evidence['stalls']>[number][] = [];
  readonly #switches: SwitchCall[] = [];
  #freezes: readonly TrailFreeze[] | undefined;
  #isFrozen = false;
  #moves: { version: number; from: string; to: string; tool?: string }[] = [];
  #status = 'idle';
  #claimed: string | undefined;
  #at = 0;
  #calls = 0;

  /** A call is sent. */
  send(tool: string, args: object = {}): Exchange {
    return this.#ask('tools/call', { name: tool, arguments: { step: this.#calls, ...args } });
  }

  list(): Exchange {
    return this.#ask('tools/list', {});
  }

  /** Its handler begins. */
  begin({ call, request }: Exchange, key = call): LedgerLine {
    const { name: tool, arguments: args } = request.params;
    const attempt = `attempt ${this.#ledger.length}`;
    const line = { attempt, server: 'server', run: 'a-run', tool, args, call, key };
    const begun: LedgerLine = { phase: 'start', at: ++this.#at, ...line };
    this.#ledger.push(begun);
    return begun;
  }

  end(begun: LedgerLine, outcome: 'succeeded' | 'failed' = 'succeeded'): void {
    this.#ledger.push({ ...begun, phase: 'end', at: ++this.#at, outcome });
  }

  /** Its client is shown the handler's result. */
  show(exchange: Exchange, begun: LedgerLine, isError = false): void {
    this.answer(exchange, { content: [{ type: 'text', text: begun.attempt }], isError });
  }

  answer(exchange: Exchange, result: object): void {
    const at = ++this.#at;
    exchange.status = 200;
    exchange.ended = at;
    exchange.messages.push({ at, message: { jsonrpc: '2.0', id: exchange.request.id, result } });
  }

  shows(exchange: Exchange, tools: readonly string[]): void {
    this.answer(exchange, { tools: [...tools, 'cart.view'].map((name) => ({ name })) });
  }

  refuse(exchange: Exchange, state: string): void {
    const refusal = { workflow: 'shop', state, reason: 'state' };
    this.answer(exchange, { isError: true, _meta: { 'mcp-interlock/refusal': refusal } });
  }

  /** It is refused since operators have stopped it. */
  refuseFrozen(exchange: Exchange, words = FROZEN): void {
    const _meta = { 'mcp-interlock/refusal': { workflow: 'shop', reason: 'frozen' } };
    this.answer(exchange, { isError: true, content: [{ type: 'text', text: words }], _meta });
  }

  break(exchange: Exchange): void {
    exchange.broke = true;
    exchange.ended = ++this.#at;
  }

  /** A whole step that goes well. */
  step(tool: string): void {
    const exchange = this.send(tool);
    const begun = this.begin(exchange);
    this.end(begun);
    this.show(exchange, begun);
  }

  resolve(key: string, outcome: 'succeeded' | 'failed', tool = 'cart.pay'): void {
    const does = { kind: 'resolve', key, tool, outcome } as const;
    const [asked, answered] = [++this.#at, ++this.#at];
    this.#outside.push({ run: 'a-run', machine: 'shop', asked, answered, does, did: true });
  }

  /** A fact is recorded beside the steps. */
  record(tool: string): void {
    const does = { kind: 'record', tool } as const;
    const [asked, answered] = [++this.#at, ++this.#at];
    this.#outside.push({ run: 'a-run', machine: 'shop', asked, answered, does, did: true });
  }

  /** An operator stops the run, or lets it go on; what is returned answers. */
  freeze(kind: 'freeze' | 'unfreeze'): () => void {
    const does: { kind: 'freeze' | 'unfreeze'; isNew?: boolean } = { kind };
    const call: OutsideCall = { run: 'a-run', machine: 'shop', asked: ++this.#at, does };
    this.#outside.push(call);
    return () => {
      does.isNew = true;
      Object.assign(call, { did: true, answered: ++this.#at });
    };
  }

  /** An operator stops a tool, or all of them, or lets them go on; it is answered at once. */
  throwSwitch(does: 'freeze' | 'unfreeze', tool?: string): void {
    const [asked, answered] = [++this.#at, ++this.#at];
    this.#switches.push({ machine: 'shop', tool, does, asked, answered });
  }

  /** So much later. */
  pass(ms: number): void {
    this.#at += ms;
  }

  /** An event from outside is asked for; what is returned answers. */
  event(event: string): () => void {
    const does = { kind: 'send', event } as const;
    const call: OutsideCall = { run: 'a-run', machine: 'shop', asked: ++this.#at, does };
    this.#outside.push(call);
    return () => Object.assign(call, { did: true, answered: ++this.#at });
  }

  /** A gate's process stands still; what is returned has it go on. */
  standStill(): () => void {
    const from = ++this.#at;
    return () => void this.#stalls.push({ server: 'server', from, to: ++this.#at });
  }

  /** What the store knows at the end. */
  trail(
    moves: readonly (readonly [from: string, to: string, tool?: string])[],
    status = 'idle',
    claimed?: string,
  ): this {
    this.#moves = moves.map(([from, to, tool], at) => ({
      version: at + 1,
      from,
      to,
      ...(tool && { tool }),
    }));
    this.#status = status;
    this.#claimed = claimed;
    return this;
  }

  /** What the trail tells of operators, at the end of `trail()`. */
  freezes(entries: readonly Partial<TrailEntry>[], isFrozen = false): this {
    const last = { seq: 1, version: 0, attempt: 0, from: 'empty' };
    this.#freezes = entries.map((each, at) => ({
      entry: { ...last, seq: at + 2, ...each },
      before: last,
    }));
    this.#isFrozen = isFrozen;
    return this;
  }

  get evidence(): Evidence {
    const last = this.#moves.at(-1);
    const now = {
      state: last?.to ?? SHOP.initial,
      version: last?.version ?? 0,
      status: this.#status,
      claimed: this.#claimed,
      isFrozen: this.#isFrozen,
    };
    const freezes = this.#freezes && { freezes: this.#freezes };
    return {
      machines: [SHOP],
      tools: SHOP_TOOLS,
      runs: [{ run: 'a-run', lists: 'hide' }],
      exchanges: this.#exchanges,
      streams: [],
      ledger: this.#ledger,
      outside: this.#outside,
      stalls: this.#stalls,
      switches: this.#switches,
      trails: [{ run: 'a-run', machine: 'shop', moves: this.#moves, ...freezes, now }],
    };
  }

  /** The kinds of faults that the checker finds. */
  get faults(): FaultKind[] {
    return check(this.evidence).map(({ kind }) => kind);
  }

  #ask(method: string, params: object): Exchange {
    const id = ++this.#calls;
    const call = `call ${id}`;
    const request = {
      jsonrpc: '2.0',
      id,
      method,
      params: { ...params, _meta: { 'checker/call': call } },
    };
    const exchange: Exchange = { call, run: 'a-run', sent: ++this.#at, request, messages: [] };
    this.#exchanges.push(exchange);
    return exchange;
  }
}

const FROZEN =
  '[System: cart.add was not run, because the operator has stopped this run of shop. Only the ' +
  'operator can let it go on. Do not try shop again until then.]';

const ADDED = ['empty', 'filled', 'cart.add'] as const;
const CHECKED_OUT = ['filled', 'payment', 'cart.checkout'] as const;

describe('check()', () => {
  it('finds nothing in a run that went well', () => {
    const story = new Story();
    story.step('cart.add');
    story.step('cart.checkout');
    expect(story.trail([ADDED, CHECKED_OUT]).faults).toEqual([]);
  });

  it('believes a list that was right at any moment between request and answer, and no other one', () => {
    const before = ['cart.add'];
    const after = ['cart.add', 'cart.checkout', 'cart.peek'];
    for (const [tools, beside, faults] of [
      [before, true, []],
      [after, true, []],
      [['cart.pay', 'cart.peek'], true, ['wrong-list']],
      [before, false, ['wrong-list']],
      [after, false, []],
    ] as const) {
      const story = new Story();
      let list = beside ? story.list() : undefined;
      story.step('cart.add');
      list ??= story.list();
      story.shows(list, tools);
      expect(story.trail([ADDED]).faults, `${tools} ${beside}`).toEqual(faults);
    }
  });

  it('keeps each order in which what was asked at once may have happened', () => {
    const told = (state: string, trail: Parameters<Story['trail']>[0]) => {
      const story = new Story();
      story.step('cart.add');
      const cleared = story.event('CLEAR');
      const early = story.send('cart.checkout');
      const late = story.list();
      const [first, second] = [story.send('cart.add'), story.send('cart.pay')];
      const begun = story.begin(first);
      story.end(begun);
      story.refuse(second, state);
      cleared();
      story.show(first, begun);
      story.refuse(early, 'empty');
      story.shows(late, ['cart.add', 'cart.checkout', 'cart.peek']);
      return story.trail(trail).faults;
    };
    const clearedFirst = [ADDED, ['filled', 'empty'], ADDED] as const;
    expect(told('empty', clearedFirst)).toEqual([]);
    expect(told('filled', clearedFirst)).toEqual([]);
    expect(told('payment', clearedFirst)).toEqual(['wrong-refusal']);
    // Had the event come last, the checkout could never have been refused in "empty".
    expect(told('filled', [ADDED, ['filled', 'filled', 'cart.add'], ['filled', 'empty']])).toEqual(
      [],
    );
    expect(told('filled', [ADDED, ['filled', 'filled', 'cart.add']])).not.toEqual([]);
  });

  it('accepts a step that was cut off and run again with its key, and none with another one', () => {
    for (const [key, faults] of [
      ['a-key', []],
      ['another', ['key', 'illegal-execution']],
    ] as const) {
      const story = new Story();
      const first = story.send('cart.add', { step: 1 });
      story.begin(first, 'a-key');
      story.break(first);
      const second = story.send('cart.add', { step: 1 });
      const begun = story.begin(second, key);
      story.end(begun);
      story.show(second, begun);
      expect(story.trail([ADDED]).faults).toEqual(faults);
    }
  });

  it('wants what was recorded while a step was at work, and the step’s own commit after it', () => {
    const noted = ['empty', 'empty', 'note'] as const;
    for (const [moves, faults] of [
      [[noted, ADDED], []],
      [[ADDED], ['lost-event']],
      [[noted], ['unsaved-success']],
      [
        [noted, noted, ADDED],
        ['committed-twice', 'unsaved-success'],
      ],
    ] as const) {
      const story = new Story();
      const call = story.send('cart.add');
      const begun = story.begin(call);
      story.record('note');
      story.end(begun);
      story.show(call, begun);
      expect(story.trail(moves).faults, JSON.stringify(moves)).toEqual(faults);
    }
  });

  it('misses a held run that the store does not know any more', () => {
    const story = new Story();
    const cut = story.send('cart.add', { step: 1 });
    story.begin(cut, 'a-key');
    story.break(cut);
    const { evidence } = story.trail([], 'held');
    const trails = [{ run: 'a-run', machine: 'shop', moves: [], now: undefined }];
    expect(check({ ...evidence, trails }).map(({ kind }) => kind)).toEqual(['lost']);
  });

  it('accepts a step whose commit no client was told of', () => {
    const story = new Story();
    const lost = story.send('cart.add');
    story.end(story.begin(lost));
    story.break(lost);
    expect(story.trail([ADDED]).faults).toEqual([]);
    expect(story.trail([]).faults).toEqual([]);
  });

  it('lets what must not be repeated begin again once it was decided that it failed', () => {
    const told = (outcome: 'succeeded' | 'failed' | undefined) => {
      const story = new Story();
      story.step('cart.add');
      const cut = story.send('cart.checkout');
      story.begin(cut, 'a-key');
      story.break(cut);
      if (outcome !== undefined) story.resolve('a-key', outcome);
      story.step('cart.checkout');
      return story.trail([ADDED, CHECKED_OUT]).faults;
    };
    expect(told('failed')).toEqual([]);
    expect(told('succeeded')).toContain('illegal-execution');
    expect(told(undefined)).toContain('illegal-execution');
  });

  it('moves a run by a decision about a handler that never began, and by none that was not made', () => {
    const told = (outcome: 'succeeded' | 'failed' | undefined) => {
      const story = new Story();
      story.step('cart.add');
      story.step('cart.checkout');
      story.break(story.send('cart.pay'));
      if (outcome !== undefined) story.resolve('a-key', outcome);
      const declined = ['payment', 'filled', 'cart.pay'] as const;
      return story.trail([ADDED, CHECKED_OUT, declined]).faults;
    };
    expect(told('failed')).toEqual([]);
    expect(told('succeeded')).toContain('lost-event');
    expect(told(undefined)).toContain('committed-twice');
  });

  it('reports an interrupted step that was neither saved nor held', () => {
    const story = new Story();
    story.step('cart.add');
    const cut = story.send('cart.checkout');
    story.begin(cut);
    story.break(cut);
    expect(story.trail([ADDED], 'held', 'cart.checkout').faults).toEqual([]);
    expect(story.trail([ADDED], 'held', 'cart.add').faults).toEqual(['stuck']);
    expect(story.trail([ADDED]).faults).toEqual(['lost']);
  });

  it('reports a success that the store does not have, also where the next step hides it', () => {
    const story = new Story();
    story.step('cart.add');
    expect(story.trail([]).faults).toContain('unsaved-success');
    story.step('cart.add');
    expect(story.trail([ADDED]).faults).toContain('unsaved-success');
  });

  it('reports a handler that ran out of order, and one that began with a key that was used up', () => {
    const story = new Story();
    story.step('cart.pay');
    expect(story.trail([]).faults).toContain('illegal-execution');
    const twice = new Story();
    const first = twice.send('cart.add', { step: 1 });
    for (let time = 0; time < 2; time++) {
      const begun = twice.begin(first, 'a-key');
      twice.end(begun);
      if (time === 0) twice.show(first, begun);
    }
    expect(twice.trail([ADDED, ['filled', 'filled', 'cart.add']]).faults).toContain('ran-twice');
  });

  it('lets a failed try be repeated with its key where a process stood still, and not after it was shown', () => {
    const told = (isShownFirst: boolean) => {
      const story = new Story();
      const [first, second] = [
        story.send('cart.add', { step: 1 }),
        story.send('cart.add', { step: 1 }),
      ];
      const failed = story.begin(first, 'a-key');
      story.end(failed, 'failed');
      if (isShownFirst) story.show(first, failed, true);
      const repeated = story.begin(second, 'a-key');
      story.end(repeated, 'failed');
      story.show(second, repeated, true);
      if (!isShownFirst) story.show(first, failed, true);
      return story.trail([]).faults;
    };
    expect(told(false)).toEqual([]);
    expect(told(true)).toEqual(['ran-twice']);
  });

  it('lets a call begin too late that was on its way while a process stood still, if its success is not shown', () => {
    const told = ({ stall = true, shown = false } = {}) => {
      const story = new Story();
      const [first, second] = [
        story.send('cart.add', { step: 1 }),
        story.send('cart.add', { step: 1 }),
      ];
      const goOn = story.standStill();
      const begun = story.begin(first, 'a-key');
      story.end(begun);
      story.show(first, begun);
      story.step('cart.checkout');
      if (stall) goOn();
      const late = story.begin(second, 'a-key');
      story.end(late);
      if (shown) story.show(second, late);
      else story.answer(second, { isError: true, _meta: { 'mcp-interlock/outcome': {} } });
      return story.trail([ADDED, CHECKED_OUT]).faults;
    };
    expect(told()).toEqual([]);
    expect(told({ stall: false })).toEqual(['ran-twice', 'illegal-execution']);
    expect(told({ shown: true })).toEqual(['ran-twice', 'illegal-execution']);
  });

  it('moves by a failure only where the binding says so, and knows what its client was told', () => {
    const story = new Story();
    story.step('cart.add');
    story.step('cart.checkout');
    const failed = story.send('cart.pay', { fail: true });
    const begun = story.begin(failed);
    story.end(begun, 'failed');
    story.show(failed, begun, true);
    const moves = [ADDED, CHECKED_OUT, ['payment', 'filled', 'cart.pay']] as const;
    expect(story.trail(moves).faults).toEqual([]);
    expect(story.trail([...moves.slice(0, 2), ['payment', 'paid', 'cart.pay']]).faults).not.toEqual(
      [],
    );
  });

  it('reports gaps, broken chains and a trail that is not where the run is', () => {
    const story = new Story();
    story.step('cart.add');
    story.step('cart.checkout');
    const { evidence } = story.trail([ADDED, ['empty', 'payment', 'cart.checkout']]);
    expect(check(evidence).map(({ kind }) => kind)).toContain('trail');
    const [trail] = story.trail([ADDED, CHECKED_OUT]).evidence.trails;
    const behind = { ...trail, now: { state: 'filled', version: 1, status: 'idle' } };
    const faults = check({ ...story.evidence, trails: [behind as Evidence['trails'][number]] });
    expect(faults.map(({ kind }) => kind)).toContain('trail');
    expect(story.trail([ADDED, CHECKED_OUT], 'running').faults).toContain('stuck');
  });
});

describe('check(), of what operators stop', () => {
  it('lets no handler begin between the answer of freeze() and the question of unfreeze()', () => {
    const told = (begins: 'before' | 'beside' | 'after' | 'thawed') => {
      const story = new Story();
      if (begins === 'before') story.step('cart.add');
      const frozen = story.freeze('freeze');
      if (begins === 'beside') story.step('cart.add');
      frozen();
      if (begins === 'after') story.step('cart.add');
      const thawed = story.freeze('unfreeze');
      if (begins === 'thawed') story.step('cart.add');
      thawed();
      return story.trail([ADDED]).faults;
    };
    for (const begins of ['before', 'beside', 'thawed'] as const)
      expect(told(begins), begins).toEqual([]);
    expect(told('after')).toEqual(['frozen']);
  });

  it('saves the step that was at work when its run was frozen', () => {
    const told = (trail: Parameters<Story['trail']>[0]) => {
      const story = new Story();
      const call = story.send('cart.add');
      const begun = story.begin(call);
      story.freeze('freeze')();
      story.end(begun);
      story.show(call, begun);
      return story.trail(trail).faults;
    };
    expect(told([ADDED])).toEqual([]);
    expect(told([])).toEqual(['unsaved-success']);
  });

  it('gives a lookup that was sent before the time to reach its handler, and no step', () => {
    const told = (tool: 'cart.peek' | 'cart.add', ms: number) => {
      const story = new Story();
      story.step('cart.add');
      const call = story.send(tool);
      story.freeze('freeze')();
      story.pass(ms);
      const begun = story.begin(call);
      story.end(begun);
      story.show(call, begun);
      const again = tool === 'cart.add' ? [['filled', 'filled', 'cart.add'] as const] : [];
      return story.trail([ADDED, ...again]).faults;
    };
    expect(told('cart.peek', 1_000)).toEqual([]);
    expect(told('cart.peek', 3_000)).toEqual(['frozen']);
    expect(told('cart.add', 1)).toEqual(['frozen']);
  });

  it('lets a handler of a stopped tool begin for one second only, and other tools go on', () => {
    const told = (stopped: string | undefined, thawed: string | undefined, ms: number) => {
      const story = new Story();
      story.throwSwitch('freeze', stopped);
      if (thawed !== undefined) story.throwSwitch('unfreeze', thawed || undefined);
      story.pass(ms);
      story.step('cart.add');
      return story.trail([ADDED]).faults;
    };
    for (const stopped of [undefined, 'cart.add']) {
      expect(told(stopped, undefined, 990)).toEqual([]);
      expect(told(stopped, undefined, 1_010)).toEqual(['frozen']);
      expect(told(stopped, '', 1_010)).toEqual([]);
    }
    expect(told('cart.pay', undefined, 1_010)).toEqual([]);
    expect(told('cart.add', 'cart.pay', 1_010)).toEqual(['frozen']);
    expect(told('cart.add', 'cart.add', 1_010)).toEqual([]);
  });

  it('excuses a process that stood still, and one that could not read the switch in the last second', () => {
    const told = (more: (evidence: Evidence) => Partial<Evidence>) => {
      const story = new Story();
      story.throwSwitch('freeze');
      story.pass(5_000);
      story.step('cart.add');
      const { evidence } = story.trail([ADDED]);
      return check({ ...evidence, ...more(evidence) }).map(({ kind }) => kind);
    };
    expect(told(() => ({}))).toEqual(['frozen']);
    expect(told(() => ({ stalls: [{ server: 'server', from: 4_000, to: 5_000 }] }))).toEqual([]);
    expect(told(() => ({ stalls: [{ server: 'other', from: 4_000, to: 5_000 }] }))).toEqual([
      'frozen',
    ]);
    expect(told(() => ({ unread: [{ from: 4_000, to: 4_500 }] }))).toEqual([]);
    expect(told(() => ({ unread: [{ from: 1_000, to: 3_000 }] }))).toEqual(['frozen']);
  });

  it('believes a refusal while something may be stopped, and only in its words', () => {
    const told = (when: 'never' | 'asked' | 'soon' | 'late', words?: string) => {
      const story = new Story();
      if (when !== 'never') story.throwSwitch('freeze', 'cart.add');
      if (when === 'soon' || when === 'late') story.throwSwitch('unfreeze');
      story.pass(when === 'late' ? 1_010 : 900);
      story.refuseFrozen(story.send('cart.add'), words);
      return story.trail([]).faults;
    };
    expect([told('asked'), told('soon')]).toEqual([[], []]);
    expect([told('never'), told('late')]).toEqual([['wrong-refusal'], ['wrong-refusal']]);
    expect(told('asked', 'Try again later.')).toEqual(['wrong-answer']);
  });

  it('wants an entry of each freeze in the trail, which is no move and no attempt', () => {
    const told = (entries: readonly Partial<TrailEntry>[], isFrozen = false) => {
      const story = new Story();
      for (const kind of ['freeze', 'unfreeze'] as const) story.freeze(kind)();
      return story.trail([]).freezes(entries, isFrozen).faults;
    };
    const [freeze, unfreeze] = [{ event: 'freeze' }, { event: 'unfreeze' }];
    expect(told([freeze, unfreeze])).toEqual([]);
    for (const wrong of [
      [],
      [freeze],
      [freeze, freeze, unfreeze],
      [{ ...freeze, outcome: 'succeeded' }, unfreeze],
      [{ ...freeze, to: 'empty' }, unfreeze],
      [{ ...freeze, attempt: 1 }, unfreeze],
      [{ ...freeze, version: 1 }, unfreeze],
    ])
      expect(told(wrong), JSON.stringify(wrong)).toContain('trail');
    expect(told([freeze, unfreeze], true)).toEqual(['trail']);
  });

  it('shows nothing that is bound in the list of a frozen run', () => {
    for (const [tools, faults] of [
      [[], []],
      [['cart.add'], ['wrong-list']],
    ] as const) {
      const story = new Story();
      story.freeze('freeze')();
      story.shows(story.list(), tools);
      expect(story.trail([]).faults).toEqual(faults);
    }
  });
});

const PROGRAM = new URL('../../lab/checker/checker.ts', import.meta.url).pathname;
const run = (...args: string[]) => runToEnd(PROGRAM, ...args);

describe('npm run checker', { timeout: 60_000 }, () => {
  it('prints its seed, ends with status 1 where a defect was planted, and judges what it wrote', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'interlock-checker-'));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const file = join(folder, 'evidence.json');
    const played = await run(
      '--defect',
      'shows-all',
      '--save',
      file,
      '--rounds',
      '8',
      '--seed',
      '5',
    );
    expect(played.stdout).toContain('npm run checker -- --seed 5 --rounds 8');
    expect(played.stdout).toContain('BROKEN wrong-list');
    expect(played.status).toBe(1);
    const judged = await run(file);
    expect(judged.stdout.split('\n').at(-2)).toBe(played.stdout.split('\n').at(-2));
    expect(judged.status).toBe(1);
    expect((await run('--defect', 'none')).stderr).toContain('expected one of all, claims-all');
  });
});
