import { InterlockError } from '../basics/errors.ts';
import { lazyOptions, optionalFunction, parseOptions, showValue } from '../basics/options.ts';
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
   * Asked before the upstream is. Its `tool` is the prompt's name, or the URI as the client wrote
   * it; `args` are the prompt's arguments. Where the guard throws, or takes longer than its
   * deadline, the gate refuses the request. Default: none.
   */
  readonly guard?: Guard<X, S, T> | undefined;
  /**
   * Who sees the prompt or the resource, as {@link BindingOptions.visible}. Default: all clients.
   */
  readonly visible?: VisibleTest<X, S, T> | undefined;
}

/** All bindings of one prompt, or of one pattern of resources, added up. */
export interface BoundRead {
  /** The prompt's name, or the pattern. */
  readonly name: string;
  readonly states: readonly BoundState[];
  /** All of them must let a request through. */
  readonly guards: readonly Guard[];
  /** The bindings. One that is available and shows it is enough. */
  readonly veils: readonly Veil[];
}

const optionsSchema = lazyOptions(() => ({
  guard: optionalFunction<Guard>(),
  visible: optionalFunction<VisibleTest>(),
}));

/**
 * The bound prompts and resources of a workflow. Reading them moves nothing. Each pattern that
 * matches a resource must allow it, so that a wide pattern does not open what a narrow one closes.
 */
export class BoundReads {
  readonly #prompts = new Map<string, BoundRead>();
  readonly #resources = new Map<string, BoundRead & { readonly pattern: ResourcePattern }>();
  // Plain fields, since every request reads them and most gates bind tools only.
  bindsPrompts = false;
  bindsResources = false;
  /** Whether some client may not see a prompt, or a resource, that its run's state shows. */
  veilsPrompts = false;
  veilsResources = false;

  get all(): readonly BoundRead[] {
    return [...this.prompts, ...this.resources];
  }

  get prompts(): readonly BoundRead[] {
    return [...this.#prompts.values()];
  }

  get resources(): readonly BoundRead[] {
    return [...this.#resources.values()];
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
    this.bindsPrompts = true;
    this.veilsPrompts ||= isVeiled(bound.veils);
  }

  /** @throws InterlockError `ERR_INTERLOCK_BINDING`, `ERR_INTERLOCK_CONFIG` */
  addResource(model: Model, uriPattern: unknown, states: unknown, options: unknown): void {
    const pattern = parseResourcePattern(uriPattern);
    const bound = boundRead(model, 'resource', String(uriPattern), states, options);
    const { key } = pattern;
    this.#resources.set(key, { ...addedUp(this.#resources.get(key), bound), pattern });
    this.bindsResources = true;
    this.veilsResources ||= isVeiled(bound.veils);
  }

  /** Adds all that `other` has. */
  addAll(other: BoundReads): void {
    for (const [name, bound] of other.#prompts) this.#prompts.set(name, bound);
    for (const [key, bound] of other.#resources) this.#resources.set(key, bound);
    this.bindsPrompts ||= other.bindsPrompts;
    this.bindsResources ||= other.bindsResources;
    this.veilsPrompts ||= other.veilsPrompts;
    this.veilsResources ||= other.veilsResources;
  }

  /** What is bound of a prompt; nothing where it is always available. */
  ofPrompt(name: string): readonly BoundRead[] {
    const bound = this.#prompts.get(name);
    return bound === undefined ? [] : [bound];
  }

  /**
   * What is bound of a resource; nothing where it is always available. `'unclear'` where the URI is
   * so odd that a bound pattern may or may not match it: the gate must refuse it.
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

  /** The bindings that match every URI which the template can make. */
  ofTemplate(uriTemplate: string): readonly BoundRead[] {
    const uris = readTemplate(uriTemplate);
    return [...this.#resources.values()].filter(({ pattern }) => pattern.matchesAll(uris));
  }

  /** What is bound of the reference of a completion: the URI of a resource, or a template. */
  ofReference(uriOrTemplate: string): readonly BoundRead[] | 'unclear' {
    const isTemplate = uriOrTemplate.includes('{');
    return isTemplate ? this.ofTemplate(uriOrTemplate) : this.ofResource(uriOrTemplate);
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
