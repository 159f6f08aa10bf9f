import type { Machine, Trail, TrailMove } from './evidence.ts';

/** Where a run may be, given what was seen so far. */
export interface Position {
  readonly state: string;
  /** How many commits it has seen. */
  readonly version: number;
  /** The step that began last, until it is committed or resolved. */
  readonly step?: { readonly key: string; readonly version: number };
  /** The open items that took effect, or were seen to be true. */
  readonly done: ReadonlySet<string>;
}

/** What may take effect at any moment while it is open. */
export interface OpenMove {
  readonly id: string;
  readonly kind: 'move';
  /** The event; where the state does not handle it the state stays, unless `strict`. */
  readonly event: string | undefined;
  /** Whether it takes no effect where the state does not handle the event. */
  readonly strict?: boolean;
  readonly tool?: string | undefined;
  /** The step whose outcome it is: no other one may have begun, or been decided, since. */
  readonly key?: string;
  /** Whether it leaves the step alone that began last. */
  readonly isBeside?: boolean;
  /** Told of each way in which it could take effect. */
  readonly onMove?: (from: string, to: string) => void;
}

/** What must be true at some moment while it is open. */
export interface OpenObservation {
  readonly id: string;
  readonly kind: 'observation';
  holds(position: Position): boolean;
}

/** The set of all positions that explain what was seen. See MODEL.md. */
export class Positions {
  readonly #machine: Machine;
  /** Whether an ended run may start again at any moment. */
  readonly #restarts: boolean;
  readonly #trail: Map<number, TrailMove> | undefined;
  /** Entries before it may be missing. */
  readonly #trailFrom: number;
  readonly #open = new Map<string, OpenMove | OpenObservation>();
  #all: Position[];

  constructor(machine: Machine, trail: Trail | undefined, restarts = false) {
    this.#machine = machine;
    this.#restarts = restarts;
    const moves = trail?.now === undefined ? undefined : trail.moves;
    this.#trail = moves && new Map(moves.map((move) => [move.version, move]));
    this.#trailFrom = moves?.[0]?.version ?? 1;
    this.#all = [{ state: machine.initial, version: 0, done: new Set() }];
  }

  get all(): readonly Position[] {
    return this.#all;
  }

  isOpen(id: string): boolean {
    return this.#open.has(id);
  }

  open(item: OpenMove | OpenObservation): void {
    this.#open.set(item.id, item);
    this.#all = unique(this.#all.map((position) => this.#seen(position)));
  }

  /**
   * The item takes no effect any more; where it `must` have, only positions are kept in which it
   * has.
   */
  settle(id: string, must: boolean): boolean {
    const reached = must ? this.#reachable().filter(({ done }) => done.has(id)) : this.#reachable();
    this.#open.delete(id);
    this.#all = unique(
      reached.map((position) => {
        if (!position.done.has(id)) return position;
        const done = new Set(position.done);
        done.delete(id);
        return { ...position, done };
      }),
    );
    return this.#all.length > 0;
  }

  /**
   * At this very moment: keeps what `next` makes of each position, and drops those of which it
   * makes nothing.
   */
  now(next: (position: Position) => Position | undefined): boolean {
    const made = this.#reachable().flatMap((position) => next(position) ?? []);
    this.#all = unique(made.map((position) => this.#seen(position)));
    return this.#all.length > 0;
  }

  /** The position after a commit, or `undefined` where the trail knows another one. */
  commit(position: Position, to: string, tool?: string): Position | undefined {
    const version = position.version + 1;
    if (this.#trail !== undefined && version >= this.#trailFrom) {
      const entry = this.#trail.get(version);
      if (entry === undefined || entry.from !== position.state || entry.to !== to) return undefined;
      if (tool !== undefined && entry.tool && entry.tool !== tool) return undefined;
    }
    const { step: _, ...rest } = position;
    return { ...rest, state: to, version };
  }

  /** Everything that the open moves can lead to, the positions themselves included. */
  #reachable(): Position[] {
    const found = new Map(this.#all.map((position) => [nameOf(position), position]));
    const ahead = [...found.values()];
    for (let position = ahead.pop(); position !== undefined; position = ahead.pop()) {
      for (const next of this.#after(position)) {
        if (found.has(nameOf(next))) continue;
        found.set(nameOf(next), next);
        ahead.push(next);
      }
    }
    return [...found.values()];
  }

  #after(position: Position): Position[] {
    const { initial, final = [] } = this.#machine;
    const isOver = this.#restarts && final.includes(position.state);
    const again = isOver ? this.commit(position, initial) : undefined;
    const moves = [...this.#open.values()].filter(
      (item): item is OpenMove => item.kind === 'move' && !position.done.has(item.id),
    );
    return [again && this.#seen(again), ...moves.map((move) => this.#apply(position, move))].filter(
      (next) => next !== undefined,
    );
  }

  #apply(position: Position, move: OpenMove): Position | undefined {
    const { step, state } = position;
    if (move.key !== undefined && (step?.key !== move.key || step.version !== position.version)) {
      return undefined;
    }
    const done = new Set(position.done).add(move.id);
    if (move.event === undefined) {
      const { step: _, ...rest } = position;
      return this.#seen({ ...rest, done });
    }
    const to = this.#machine.states[state]?.[move.event];
    if (to === undefined && move.strict) return undefined;
    const next = this.commit(position, to ?? state, move.tool);
    if (next === undefined) return undefined;
    move.onMove?.(state, to ?? state);
    const goesOn = move.isBeside === true && step?.version === position.version;
    const kept = goesOn ? { step: { key: step.key, version: next.version } } : {};
    return this.#seen({ ...next, ...kept, done });
  }

  /** With each open observation that is true here. */
  #seen(position: Position): Position {
    const seen = [...this.#open.values()].filter(
      (item) => item.kind === 'observation' && !position.done.has(item.id) && item.holds(position),
    );
    if (seen.length === 0) return position;
    return { ...position, done: new Set([...position.done, ...seen.map(({ id }) => id)]) };
  }
}

function nameOf({ state, version, step, done }: Position): string {
  return JSON.stringify([state, version, step?.key, step?.version, [...done].sort()]);
}

function unique(positions: readonly Position[]): Position[] {
  return [...new Map(positions.map((position) => [nameOf(position), position])).values()];
}
