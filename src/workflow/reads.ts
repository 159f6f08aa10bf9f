import * as z from 'zod/mini';
import { InterlockError } from '../errors.ts';
import { functionOption, parseOptions, showValue } from '../options.ts';
import type { Json } from '../stores/store.ts';
import type { Guard, VisibleTest } from './binding.ts';
import { type BoundState, type Model, parseStates, resolveStates } from './position.ts';
import {
  parseResourcePattern,
  type ResourcePattern,
  readTemplate,
  readUri,
  schemeOf,
} from './resource-pattern.ts';
import { isVeiled, type Veil } from './visible.ts';

/** What a binding of a prompt or a resource may say beside its states. */
export interface ReadOptions<
  X = Json | undefined,
  S extends string = string,
  T extends string = string,
> {
  /**
   * Asked before the prompt or the resource is. Its `tool` is the prompt's name, or the URI as the
   * client wrote it; `args` are the prompt's arguments. Where it throws, or takes longer than its
   * deadline, it refuses. Default: none.
   */
  readonly guard?: Guard<X, S, T> | undefined;
  /**
   * Who sees the prompt or the resource, as {@link BindingOptions.visible}. Default: everybody
   * does.
   */
  readonly visible?: VisibleTest<X, S, T> | undefined;
}

/**
 * A prompt, or the resources that a pattern matches, and where they are available: all bindings of
 * it, added up.
 */
export interface BoundRead {
  /** The prompt's name, or the pattern. */
  readonly name: string;
  readonly states: readonly BoundState[];
  /** Each of them must let it through. */
  readonly guards: readonly Guard[];
  /** Its bindings, of which one must be available and say yes. */
  readonly veils: readonly Veil[];
}

interface BoundResource extends BoundRead {
  readonly pattern: ResourcePattern;
}

const optionsSchema = z.strictObject({
  guard: z.optional(functionOption<Guard>()),
  visible: z.optional(functionOption<VisibleTest>()),
});

/**
 * The prompts and resources of a workflow. Reading them moves nothing.
 *
 * A resource that several patterns match must be allowed by each of them: a wide one does not open
 * what a narrow one closes.
 */
export class BoundReads {
  readonly #prompts = new Map<string, BoundRead>();
  readonly #resources = new Map<string, BoundResource>();

  get isEmpty(): boolean {
    return !this.bindsPrompts && !this.bindsResources;
  }

  get bindsPrompts(): boolean {
    return this.#prompts.size > 0;
  }

  get bindsResources(): boolean {
    return this.#resources.size > 0;
  }

  /** Whether some client may not see a prompt that its run's state shows. */
  get veilsPrompts(): boolean {
    return [...this.#prompts.values()].some(({ veils }) => isVeiled(veils));
  }

  get veilsResources(): boolean {
    return [...this.#resources.values()].some(({ veils }) => isVeiled(veils));
  }

  get all(): readonly BoundRead[] {
    return [...this.#prompts.values(), ...this.#resources.values()];
  }

  get promptNames(): readonly string[] {
    return [...this.#prompts.keys()];
  }

  /** @throws InterlockError `ERR_INTERLOCK_BINDING`, `ERR_INTERLOCK_CONFIG` */
  addPrompt(model: Model, name: unknown, states: unknown, options: unknown): void {
    if (typeof name !== 'string' || name === '') {
      const message = `expected the name of a prompt, got ${showValue(name)}`;
      throw new InterlockError('ERR_INTERLOCK_BINDING', message);
    }
    const bound = boundRead(model, 'prompt', name, states, options);
    this.#prompts.set(name, addedUp(this.#prompts.get(name), bound));
  }

  /** @throws InterlockError `ERR_INTERLOCK_BINDING`, `ERR_INTERLOCK_CONFIG` */
  addResource(model: Model, uriPattern: unknown, states: unknown, options: unknown): void {
    const pattern = parseResourcePattern(uriPattern);
    const bound = boundRead(model, 'resource', String(uriPattern), states, options);
    const { key } = pattern;
    this.#resources.set(key, { ...addedUp(this.#resources.get(key), bound), pattern });
  }

  /** Takes over all that another one has. */
  addAll(other: BoundReads): void {
    for (const [name, bound] of other.#prompts) this.#prompts.set(name, bound);
    for (const [key, bound] of other.#resources) this.#resources.set(key, bound);
  }

  /** What is bound of a prompt; nothing where it is always available. */
  ofPrompt(name: string): readonly BoundRead[] {
    const bound = this.#prompts.get(name);
    return bound === undefined ? [] : [bound];
  }

  /**
   * What is bound of a resource; nothing where it is always available. `'unclear'` where a bound
   * pattern could mean the URI, and it is written so that nobody can tell: it must be refused.
   */
  ofResource(uri: string): readonly BoundRead[] | 'unclear' {
    const resources = [...this.#resources.values()];
    const scheme = schemeOf(uri);
    if (scheme !== undefined && !resources.some(({ pattern }) => pattern.scheme === scheme))
      return [];
    const read = readUri(uri);
    return read === undefined
      ? 'unclear'
      : resources.filter(({ pattern }) => pattern.matches(read));
  }

  /** What is bound of all resources that a URI template can make. */
  ofTemplate(uriTemplate: string): readonly BoundRead[] {
    const uris = readTemplate(uriTemplate);
    return [...this.#resources.values()].filter(({ pattern }) => pattern.matchesAll(uris));
  }

  /** What is bound of what a completion refers to: a resource, or a template. */
  ofReference(uriOrTemplate: string): readonly BoundRead[] | 'unclear' {
    const isTemplate = uriOrTemplate.includes('{');
    return isTemplate ? this.ofTemplate(uriOrTemplate) : this.ofResource(uriOrTemplate);
  }

  /** Whether `isOpen` says the same of each prompt before and after a move. */
  samePrompts(isOpen: (bound: BoundRead, when: 'before' | 'after') => boolean): boolean {
    return isSame([...this.#prompts.values()], isOpen);
  }

  /** Whether `isOpen` says the same of each pattern before and after a move. */
  sameResources(isOpen: (bound: BoundRead, when: 'before' | 'after') => boolean): boolean {
    return isSame([...this.#resources.values()], isOpen);
  }
}

function boundRead(
  model: Model,
  kind: string,
  name: string,
  states: unknown,
  options: unknown,
): BoundRead {
  const what = `${kind} ${showValue(name)}`;
  const parsed = resolveStates(model, what, parseStates(what, states));
  const { guard, visible } = parseOptions(`binding of ${what}`, optionsSchema, options);
  const guards = guard === undefined ? [] : [guard];
  return { name, states: parsed, guards, veils: [{ states: parsed, visible }] };
}

function addedUp(known: BoundRead | undefined, added: BoundRead): BoundRead {
  if (known === undefined) return added;
  return {
    name: known.name,
    states: [...known.states, ...added.states],
    guards: [...known.guards, ...added.guards],
    veils: [...known.veils, ...added.veils],
  };
}

function isSame(
  bound: readonly BoundRead[],
  isOpen: (bound: BoundRead, when: 'before' | 'after') => boolean,
): boolean {
  return bound.every((each) => isOpen(each, 'before') === isOpen(each, 'after'));
}
