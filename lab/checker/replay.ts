import {
  type Exchange,
  type Machine,
  type MachineBinding,
  meets,
  type OutsideCall,
  type RunInfo,
  type Span,
  type Trail,
} from './evidence.ts';
import type { Stopped } from './freezes.ts';
import { type Position, Positions } from './positions.ts';
import {
  type Answer,
  type Attempt,
  bindingOf,
  hideable,
  isStep,
  seenState,
  shownIn,
} from './reading.ts';

/** All that is known of one run, for one machine. */
export interface RunFacts {
  readonly info: RunInfo;
  readonly machine: Machine;
  /** The server's tools. */
  readonly tools: readonly string[];
  /** Of tools that the machine binds, in the order in which they began. */
  readonly attempts: readonly (Attempt & { readonly binding: MachineBinding })[];
  readonly asked: readonly (readonly [Exchange, Answer])[];
  readonly outside: readonly OutsideCall[];
  readonly trail: Trail | undefined;
  /** When operators had stopped the run by itself. */
  readonly frozen: Stopped;
  readonly outages: readonly Span[];
}

export interface Fault {
  readonly kind: FaultKind;
  readonly run: string;
  readonly machine: string;
  readonly text: string;
}

export type FaultKind =
  | 'illegal-execution'
  | 'unsaved-success'
  | 'wrong-list'
  | 'wrong-refusal'
  | 'lost-event'
  | 'wrong-look'
  | 'key'
  | 'ran-twice'
  | 'foreign-run'
  | 'overlap'
  | 'trail'
  | 'committed-twice'
  | 'phantom'
  | 'lost'
  | 'stuck'
  | 'untold'
  | 'wrong-answer'
  | 'frozen';

/** What a run's replay comes to. */
export interface Replay {
  readonly fault: { readonly kind: FaultKind; readonly text: string } | undefined;
  /** For each step, the ways in which its outcome may have moved the run: pairs of states. */
  readonly moves: ReadonlyMap<string, ReadonlySet<string>>;
}

/** Something that happened. */
interface Happening {
  readonly at: number;
  /** At one moment what opens comes first, so that each test is made with the widest interval. */
  readonly order: 0 | 1;
  /** Whether any position explains it. */
  readonly does: () => boolean;
  readonly kind: FaultKind;
  readonly text: () => string;
}

/** Goes through the facts by time, with the set of all positions that explain them. */
export function replay(facts: RunFacts): Replay {
  return new RunReplay(facts).play();
}

class RunReplay {
  readonly #facts: RunFacts;
  readonly #positions: Positions;
  readonly #happenings: Happening[] = [];
  readonly #moves = new Map<string, Set<string>>();
  /** When each attempt's client was told of its outcome. */
  readonly #told = new Map<string, number>();
  /** The attempts whose outcome is saved in each position. */
  readonly #saved = new Set<string>();
  /** When each call was sent. */
  readonly #sent: ReadonlyMap<string, number>;
  #last: RunFacts['attempts'][number] | undefined;

  constructor(facts: RunFacts) {
    this.#facts = facts;
    this.#positions = new Positions(facts.machine, facts.trail, facts.info.restarts);
    this.#sent = new Map(facts.asked.map(([{ call, sent }]) => [call, sent]));
    for (const [, { told, at }] of facts.asked) {
      if (told.kind === 'done') this.#told.set(told.attempt, at);
    }
  }

  play(): Replay {
    const { attempts, asked, outside } = this.#facts;
    for (const attempt of attempts) {
      if (isStep(attempt.binding)) this.#addStep(attempt);
      else this.#addRead(attempt);
    }
    for (const [exchange, answer] of asked) this.#addAnswer(exchange, answer);
    for (const call of outside) this.#addOutside(call);
    this.#happenings.sort((a, b) => a.at - b.at || a.order - b.order);
    for (const { does, kind, text } of this.#happenings) {
      const before = this.#positions.all;
      if (!does()) {
        return {
          fault: { kind, text: `${text()}; it was ${describe(before)}` },
          moves: this.#moves,
        };
      }
    }
    return { fault: this.#end(), moves: this.#moves };
  }

  #opens(at: number, does: () => void): void {
    const opened = (): true => {
      does();
      return true;
    };
    this.#happenings.push({ at, order: 0, does: opened, kind: 'trail', text: () => '' });
  }

  #settles(at: number, kind: FaultKind, text: () => string, does: () => boolean): void {
    if (Number.isFinite(at)) this.#happenings.push({ at, order: 1, does, kind, text });
  }

  #addStep(attempt: RunFacts['attempts'][number]): void {
    const { name, tool, key, started, ended } = attempt;
    const what = `${name} (${tool})`;
    // A success is saved before the next step begins, though its answer may take longer.
    const before = (): string =>
      `the next step began, and the success of ${this.#last?.name} is not saved`;
    this.#settles(started, 'unsaved-success', before, () => this.#settleLast());
    const began = (): string => `the handler ${what} began`;
    this.#settles(started, 'illegal-execution', began, () => this.#begin(attempt));
    const event = eventOf(attempt);
    if (ended === undefined || event === undefined) return;
    const moves = new Set<string>();
    this.#moves.set(name, moves);
    this.#opens(ended, () => {
      // Another step has begun: the outcome of this one comes too late.
      if (this.#last !== attempt) return;
      const onMove = (from: string, to: string) => moves.add(JSON.stringify([from, to]));
      this.#positions.open({ id: name, kind: 'move', event, tool, key, onMove });
    });
    const told = this.#told.get(name);
    if (told === undefined) return;
    const shown = (): string => `the outcome of ${what} was shown, and is not saved`;
    this.#settles(told, 'unsaved-success', shown, () => this.#settleStep(attempt));
  }

  #settleLast(): boolean {
    const last = this.#last;
    return last === undefined || !this.#positions.isOpen(last.name) || this.#settleStep(last);
  }

  #settleStep({ name, outcome }: Attempt): boolean {
    // The event of a failure may be one that the state does not handle.
    const must = this.#told.has(name) && outcome !== 'failed';
    if (!this.#positions.isOpen(name)) return !must || this.#saved.has(name);
    if (must) this.#saved.add(name);
    return this.#positions.settle(name, must);
  }

  #begin(attempt: RunFacts['attempts'][number]): boolean {
    const last = this.#last;
    this.#last = attempt;
    const { binding, key } = attempt;
    return this.#positions.now((position) => {
      if (last !== undefined && position.step !== undefined && !mayFollow(last, attempt)) {
        return undefined;
      }
      // The restart of an ended run is a move of its own, before the step.
      if (position.state !== this.#visible(position)) return undefined;
      if (!binding.from.includes(position.state)) return undefined;
      return { ...position, step: { key, version: position.version } };
    });
  }

  /** The state as clients see it. */
  #visible({ state }: Position): string {
    return seenState(this.#facts.machine, this.#facts.info, state);
  }

  #addRead({ name, tool, binding, call, started }: RunFacts['attempts'][number]): void {
    const sent = this.#sent.get(call) ?? started;
    const holds = (position: Position) => binding.from.includes(this.#visible(position));
    this.#observe(
      `read ${name}`,
      sent,
      started,
      holds,
      'illegal-execution',
      () => `the handler ${name} (${tool}) began`,
    );
  }

  #observe(
    id: string,
    from: number,
    to: number,
    holds: (position: Position) => boolean,
    kind: FaultKind,
    text: () => string,
  ): void {
    if (!Number.isFinite(to)) return;
    this.#opens(from, () => this.#positions.open({ id, kind: 'observation', holds }));
    this.#settles(to, kind, text, () => this.#positions.settle(id, true));
  }

  #addAnswer({ call, sent, request }: Exchange, { told, at }: Answer): void {
    const { machine, tools, info, outages, frozen } = this.#facts;
    if (told.kind === 'tools' && told.isWhole && info.lists === 'hide') {
      const names = hideable(machine);
      const shown = told.names.filter((name) => names.has(name)).sort();
      const wasAway = meets(outages, sent, at);
      const maybeEmpty = wasAway || meets(frozen.maybe, sent, at);
      if (maybeEmpty && shown.length === 0) return;
      const isStep = (name: string): boolean =>
        machine.bindings.some(
          ({ tool, success, failure }) => tool === name && (success ?? failure) !== undefined,
        );
      const holds = (position: Position): boolean => {
        const all = shownIn(machine, tools, this.#visible(position)).sort();
        // A claim whose answer is lost holds its run until the gate has let it go.
        const mayLackSteps = wasAway && String(all.filter((each) => !isStep(each)));
        return String(all) === String(shown) || mayLackSteps === String(shown);
      };
      this.#observe(
        call,
        sent,
        at,
        holds,
        'wrong-list',
        () => `list ${call} showed ${shown.join(', ') || 'nothing'}`,
      );
    }
    if (told.kind === 'refused' && told.reason === 'state' && told.workflow === machine.id) {
      const { name, arguments: args } = request.params;
      const holds = (position: Position) => {
        const visible = this.#visible(position);
        const isNamed =
          told.state === undefined || [visible, position.state].includes(String(told.state));
        return isNamed && bindingOf(machine, name, args)?.from.includes(visible) !== true;
      };
      this.#observe(
        call,
        sent,
        at,
        holds,
        'wrong-refusal',
        () => `call ${call} of ${name} was refused in "${told.state}"`,
      );
    }
  }

  #addOutside({ asked, answered = Number.POSITIVE_INFINITY, does, did }: OutsideCall): void {
    const id = `${does.kind} at ${asked}`;
    if (does.kind === 'look') {
      const holds = ({ state, version }: Position) =>
        does.state === state && (does.version === undefined || does.version === version);
      this.#observe(
        id,
        asked,
        answered,
        holds,
        'wrong-look',
        () => `runs.read() said "${does.state}" at ${does.version}`,
      );
    }
    if (does.kind === 'look' || does.kind === 'freeze' || does.kind === 'unfreeze') return;
    if (did === false) return;
    this.#opens(asked, () =>
      this.#positions.open({ id, kind: 'move', ...this.#outsideMove(does) }),
    );
    this.#settles(
      answered,
      'lost-event',
      () => `${JSON.stringify(does)} was said to be done`,
      () => this.#positions.settle(id, did === true),
    );
  }

  #outsideMove(does: Exclude<OutsideCall['does'], { kind: 'look' | 'freeze' | 'unfreeze' }>) {
    if (does.kind === 'send') return { event: does.event, strict: true };
    if (does.kind === 'record') return { event: '', tool: does.tool, isBeside: true };
    const { attempts, machine } = this.#facts;
    const step = attempts.find(({ key }) => key === does.key);
    // A process may have died before it called the handler; the decision moves the run all the
    // same.
    const binding = step?.binding ?? machine.bindings.find(({ tool }) => tool === does.tool);
    const event = does.outcome === 'succeeded' ? (binding?.success ?? '') : binding?.failure;
    return step === undefined
      ? { event, tool: does.tool }
      : { event, tool: step.tool, key: does.key };
  }

  #end(): Replay['fault'] {
    const { trail } = this.#facts;
    if (trail?.now === undefined) return undefined;
    const { state, version, status } = trail.now;
    const before = describe(this.#positions.all);
    const isThere = this.#positions.now((position) =>
      position.state === state && position.version === version ? position : undefined,
    );
    if (!isThere) {
      return {
        kind: 'phantom',
        text: `the store has the run in "${state}" at version ${version}, and it can only be ${before}`,
      };
    }
    const last = this.#last;
    const isOpen = this.#positions.all.every(({ step }) => step !== undefined);
    if (
      status === 'idle' &&
      isOpen &&
      last?.ended === undefined &&
      last?.binding.uncertain === 'hold'
    ) {
      return {
        kind: 'lost',
        text: `${last.name} (${last.tool}) was cut off, and neither saved nor held`,
      };
    }
    return undefined;
  }
}

/** Whether a step may begin although no commit or decision ended the one before it. */
function mayFollow(
  last: RunFacts['attempts'][number],
  next: RunFacts['attempts'][number],
): boolean {
  if (last.ended !== undefined && eventOf(last) === undefined) return true;
  if (last.outcome === 'failed') return next.key !== last.key;
  if (last.binding.uncertain === 'hold') return false;
  return next.key === last.key || stepOf(next) !== stepOf(last);
}

/**
 * What the outcome sends; a success without an event is a commit, too. A failure without one lets
 * the run go.
 */
function eventOf({ binding, outcome }: RunFacts['attempts'][number]): string | undefined {
  return outcome === 'failed' ? binding.failure : (binding.success ?? '');
}

/** One step: repetitions have the same tool and the same arguments. */
export function stepOf({ tool, args }: Pick<Attempt, 'tool' | 'args'>): string {
  return `${tool} ${JSON.stringify(args)}`;
}

function describe(positions: readonly Position[]): string {
  const places = positions.map(
    ({ state, version, step }) =>
      `"${state}" at version ${version}${step ? ` in step ${step.key}` : ''}`,
  );
  return [...new Set(places)].slice(0, 4).join(' or ') || 'nowhere';
}
