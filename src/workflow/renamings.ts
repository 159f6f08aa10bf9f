/**
 * The names that tools had before, and the paths of their arguments. Hides how a run's record is
 * kept under the oldest of them, so that builds with other names read one record. Pure.
 */
import * as z from 'zod/mini';
import { digestOf } from '../basics/digest.ts';
import { ExactNumber } from '../basics/numbers.ts';
import { isTable, lazily, showValue } from '../basics/options.ts';
import {
  fault,
  MISSING,
  type Path,
  parsePath,
  pointerTo,
  type Reader,
  readerOf,
} from './condition.ts';

/** What an author says of a tool that had another name, or arguments with other names. */
export interface Renamed {
  /** The names that the tool had before, the oldest first. Runs keep all under the oldest. */
  readonly renamed?: readonly string[] | undefined;
  /**
   * The arguments that had another path before: the path that the tool has now, and its oldest one.
   * Rules read the new one.
   */
  readonly args?: { readonly [path: string]: string } | undefined;
}

interface PathAsWritten {
  readonly text: string;
  readonly keys: Path;
}

interface MovedPath {
  readonly now: PathAsWritten;
  readonly before: PathAsWritten;
}

export const renamedOptions = lazily(() => ({
  renamed: z.optional(z.array(z.string().check(z.minLength(1))).check(z.minLength(1))),
  args: z.optional(z.record(z.string(), z.string())),
}));

export class Renamings {
  readonly #current = new Map<string, string>();
  readonly #oldest = new Map<string, string>();
  readonly #paths = new Map<string, readonly MovedPath[]>();

  /**
   * @param what for errors
   * @param all those that say something, by the name of today
   * @param named all names that rules or bindings have today
   * @throws InterlockError `ERR_INTERLOCK_CONFIG`
   */
  static of(
    what: string,
    all: Iterable<readonly [tool: string, given: Renamed]>,
    named: (tool: string) => boolean = () => false,
  ): Renamings {
    const made = new Renamings();
    for (const [tool, { renamed = [], args = {} }] of all) {
      const own = `${what}: ${showValue(tool)}: renamed`;
      for (const name of renamed) {
        const other = made.#current.get(name);
        if (name === tool) throw fault(own, 'a tool cannot have its own name as an old one');
        if (named(name))
          throw fault(
            own,
            `${showValue(name)} is a name of today too: say ${showValue(tool)} there`,
          );
        if (other !== undefined && other !== tool)
          throw fault(own, `${showValue(name)} is an old name of ${showValue(other)} too`);
        made.#current.set(name, tool);
      }
      const [oldest] = renamed;
      if (oldest !== undefined) made.#oldest.set(tool, oldest);
      const about = `${what}: ${showValue(tool)}: args`;
      const written = (text: string): PathAsWritten => ({ text, keys: parsePath(about, text) });
      const moved = Object.entries(args).map(([now, before]) => {
        return { now: written(now), before: written(before) };
      });
      if (moved.length > 0) made.#paths.set(tool, moved);
    }
    return made;
  }

  /** Whether a tool has another name, or other paths, than its oldest ones. */
  get renames(): boolean {
    return this.#current.size + this.#paths.size > 0;
  }

  /** A tool by the name that it has today. */
  currentOf(tool: string): string {
    return this.#current.get(tool) ?? tool;
  }

  /** A tool by the name under which runs keep it. */
  savedOf(tool: string): string {
    const current = this.#current.get(tool) ?? tool;
    return this.#oldest.get(current) ?? current;
  }

  movesPaths(tool: string): boolean {
    return this.#paths.has(this.currentOf(tool));
  }

  savedPath(tool: string, path: string): string {
    return this.#moved(tool, path, 'now', 'before');
  }

  currentPath(tool: string, path: string): string {
    return this.#moved(tool, path, 'before', 'now');
  }

  #moved(tool: string, path: string, from: keyof MovedPath, to: keyof MovedPath): string {
    // All arguments are read with their oldest paths.
    if (path === '') return path;
    const keys = parsePath(tool, path);
    for (const each of this.#paths.get(this.currentOf(tool)) ?? []) {
      const start = each[from].keys;
      if (!start.every((key, at) => keys[at] === key)) continue;
      const moved = [...each[to].keys, ...keys.slice(start.length)];
      // A build with that path has it as it was written there.
      return path.startsWith('/') ? pointerTo(moved) : textOf(moved);
    }
    return path;
  }

  /** A condition on arguments with its oldest paths. */
  savedCondition(tool: string, said: unknown): unknown {
    if (Array.isArray(said)) return said.map((each) => this.savedCondition(tool, each));
    if (!isTable(said) || !this.movesPaths(tool)) return said;
    return Object.fromEntries(
      Object.entries(said).map(([key, value]) => {
        const isInner = key === 'any' || key === 'not';
        return isInner
          ? [key, this.savedCondition(tool, value)]
          : [this.savedPath(tool, key), value];
      }),
    );
  }

  /** The digest of a call's arguments with their oldest paths. */
  digestOf(
    tool: string,
    call: { readonly sentArguments: unknown; readonly digest: string },
  ): string {
    const saved = this.#savedArguments(tool, call.sentArguments);
    return saved === call.sentArguments ? call.digest : digestOf(saved);
  }

  /**
   * The arguments of a call with their oldest paths. As they are, where something else is in such a
   * place: other arguments have another digest.
   */
  #savedArguments(tool: string, sent: unknown): unknown {
    // A call by an old name has the old paths.
    const paths = this.#current.has(tool) ? [] : (this.#paths.get(tool) ?? []);
    const read = readerOf(sent);
    const moved = paths.filter(({ now }) => read(now.keys) !== MISSING);
    if (moved.length === 0) return sent;
    let saved = sent;
    for (const { now } of moved) saved = withMember(saved, now.keys, MISSING);
    for (const { now, before } of moved) {
      if (!isFree(saved, before.keys)) return sent;
      saved = withMember(saved, before.keys, read(now.keys));
    }
    const away = moved.map(({ now }) => now.keys);
    return compacted(saved, away);
  }

  /**
   * Reads the arguments of a call by the paths of today, also where it came by an old name. All of
   * them together have their oldest paths, so that builds with others agree on them.
   */
  readerOf(tool: string, read: Reader): Reader {
    if (!this.movesPaths(tool)) return read;
    const { digests } = read;
    if (!this.#current.has(tool)) {
      const whole = (keys: Path): unknown =>
        keys.length === 0 ? this.#savedArguments(tool, read(keys)) : read(keys);
      // What was recorded of all of them together has the paths of the call.
      return Object.assign(whole, digests && { digests });
    }
    const inEither = <Found>(at: (keys: Path) => Found) => {
      return (keys: Path): Found => {
        const found = at(keys);
        if (found !== MISSING || keys.length === 0) return found;
        return at(parsePath(tool, this.savedPath(tool, textOf(keys))));
      };
    };
    return Object.assign(inEither(read), digests && { digests: inEither(digests) });
  }
}

function textOf(keys: Path): string {
  if (keys.every((key) => !/[./~]/.test(key))) return keys.join('.');
  return pointerTo(keys);
}

/** Whether it has members, and may have one of that name. */
function isHolder(value: unknown, key: string): boolean {
  if (Array.isArray(value)) return INDEX.test(key);
  return isTable(value) && !(value instanceof ExactNumber);
}

const INDEX = /^\d{1,9}$/;

/** Whether nothing is at a path, and nothing but objects and lists is on the way there. */
function isFree(value: unknown, keys: Path): boolean {
  const read = readerOf(value);
  for (let length = keys.length; length > 0; length--) {
    const found = read(keys.slice(0, length));
    const next = keys[length];
    if (found !== MISSING) return next !== undefined && isHolder(found, next);
  }
  return true;
}

/** A copy with another member there. Where nothing is, a number makes a list. */
function withMember(value: unknown, [key, ...rest]: Path, member: unknown): unknown {
  if (key === undefined) return member;
  const isNew = !isHolder(value, key);
  if (Array.isArray(value) || (isNew && INDEX.test(key))) {
    const list: unknown[] = isNew ? [] : (value as unknown[]).slice();
    list[Number(key)] = withMember(list[Number(key)], rest, member);
    return list;
  }
  const others = isNew ? [] : Object.entries(value as object);
  const [, inner] = others.find(([name]) => name === key) ?? [];
  const kept = others.filter(([name]) => name !== key);
  return Object.fromEntries([...kept, [key, withMember(inner, rest, member)]]);
}

/** Without the members that moved away, and without what has none left. */
function compacted(value: unknown, away: readonly Path[]): unknown {
  if (away.length === 0 || typeof value !== 'object' || value === null) return value;
  const members = Object.entries(value).flatMap(([key, each]) => {
    const inner = away.flatMap(([first, ...rest]) =>
      first === key && rest.length > 0 ? [rest] : [],
    );
    const own = compacted(each, inner);
    return own === MISSING ? [] : [[key, own] as const];
  });
  if (members.length === 0) return MISSING;
  return Array.isArray(value) ? members.map(([, own]) => own) : Object.fromEntries(members);
}
