/**
 * What a binding says about states: hides how such expressions are read, checked and worked out.
 */
import { InterlockError, type InterlockErrorCode } from '../errors.ts';
import { rightNames } from '../names.ts';
import { isTable, showValue } from '../options.ts';
import type { BoundState, Model, StateExpression, StateTag } from './position.ts';

/** Any state that the machine has. No state of a machine may be called so. */
export const ANY_STATE = '*';

/** A name or a tag, of which an expression is made. */
type Atom = string | StateTag;

/** Whether an expression is true where `isTrue` says what its names and tags are. */
export function holds(expression: BoundState, isTrue: (atom: Atom) => boolean): boolean {
  if (typeof expression === 'string') return expression === ANY_STATE || isTrue(expression);
  if ('all' in expression) return expression.all.every((each) => holds(each, isTrue));
  if ('any' in expression) return expression.any.some((each) => holds(each, isTrue));
  if ('not' in expression) return !holds(expression.not, isTrue);
  return isTrue(expression);
}

/** The names and tags that an expression is made of. */
export function atomsOf(expression: BoundState): readonly Atom[] {
  if (typeof expression === 'string' || 'tag' in expression) return [expression];
  if ('not' in expression) return atomsOf(expression.not);
  return ('all' in expression ? expression.all : expression.any).flatMap(atomsOf);
}

/** The names in what may be an expression; what is none is refused where it is parsed. */
export function namesIn(value: unknown): readonly string[] {
  if (typeof value === 'string') return [value];
  if (!isTable(value)) return [];
  const { all, any: some, not } = value;
  return [all, some]
    .flatMap((each) => (Array.isArray(each) ? each : []))
    .concat(not ?? [])
    .flatMap(namesIn);
}

/**
 * A frozen copy of what a binding says.
 *
 * @throws InterlockError `ERR_INTERLOCK_BINDING` unless it is one expression, or a list of them
 */
export function parseStates(what: string, states: unknown): readonly BoundState[] {
  const list: readonly unknown[] = Array.isArray(states) ? states : [states];
  const parsed = (list.length === 0 ? [states] : list).map((each) => parseExpression(what, each));
  const distinct = new Map(parsed.map((each) => [JSON.stringify(each), each]));
  return Object.freeze([...distinct.values()]);
}

/** A frozen copy of one expression. @throws InterlockError with `code` unless it is one */
export function parseExpression(
  what: string,
  value: unknown,
  code: InterlockErrorCode = 'ERR_INTERLOCK_BINDING',
): StateExpression {
  if (typeof value === 'string') return value;
  const entries = isTable(value) ? Object.entries(value) : [];
  const [[key, inner] = ['', undefined]] = entries;
  if (entries.length === 1) {
    if (key === 'tag' && typeof inner === 'string') return Object.freeze({ tag: inner });
    if (key === 'not') return Object.freeze({ not: parseExpression(what, inner, code) });
    if ((key === 'all' || key === 'any') && Array.isArray(inner) && inner.length > 0) {
      const parts = Object.freeze(inner.map((each) => parseExpression(what, each, code)));
      return Object.freeze(key === 'all' ? { all: parts } : { any: parts });
    }
  }
  const keys = Object.entries(isTable(value) ? value : {});
  const inside = keys.map(([name, each]) => `${name}: ${showValue(each)}`).join(', ');
  const got = keys.length === 0 ? showValue(value) : `{ ${inside} }`;
  const right = 'a name, { tag }, { all: […] }, { any: […] } or { not: … }';
  throw new InterlockError(
    code,
    `${what}: expected one state or more${isTable(value) ? `: ${right}` : ''}, got ${got}`,
  );
}

/**
 * What a binding says, as the machine takes it: of a flat one, plain names.
 *
 * @throws InterlockError `ERR_INTERLOCK_BINDING` for a state or a tag that the workflow does not
 * have, and for an expression that is true nowhere in it
 */
export function resolveStates(
  model: Model,
  what: string,
  states: readonly BoundState[],
): readonly BoundState[] {
  for (const state of states) {
    const fault = stateFault(model, state);
    if (fault !== undefined)
      throw new InterlockError('ERR_INTERLOCK_BINDING', `${what} is bound to ${fault}`);
  }
  if (!model.isFlat || states.every((each) => isName(model, each))) return states;
  const named = states.flatMap((each) =>
    isName(model, each) ? [each] : model.names.filter((name) => model.isIn(name, [each])),
  );
  return Object.freeze([...new Set(named)]);
}

function isName(model: Model, state: BoundState): boolean {
  return typeof state === 'string' && model.names.includes(state);
}

/** What is wrong with what a binding says, by what the workflow has. */
export function stateFault(model: Model, state: BoundState): string | undefined {
  for (const atom of atomsOf(state)) {
    const [name, known, kind] =
      typeof atom === 'string' ? [atom, model.names, 'state'] : [atom.tag, model.tags, 'tag'];
    if (known.includes(name) || atom === ANY_STATE) continue;
    const fault = `${showValue(name)}, which is no ${kind} of workflow "${model.id}"`;
    return `${fault}, ${rightNames(name, known)}`;
  }
  const isAtom = typeof state === 'string' || 'tag' in state;
  if (isAtom || model.canBeIn([state], [ANY_STATE])) return undefined;
  return `${showState(state)}, which is true in no state of workflow "${model.id}"`;
}

/** An expression as messages for developers show it. */
export function showState(state: BoundState): string {
  if (typeof state === 'string') return showValue(state);
  if ('tag' in state) return `tag ${showValue(state.tag)}`;
  if ('not' in state) return `{ not: ${showState(state.not)} }`;
  const [word, parts] = 'all' in state ? ['all', state.all] : ['any', state.any];
  return `{ ${word}: [${parts.map(showState).join(', ')}] }`;
}

/** How a name in an expression is said. */
export interface Preposition {
  readonly word: string;
  readonly say: (name: string) => string;
  /** How a tag is said. */
  readonly quote: (tag: string) => string;
}

/** Where an expression is true: `in "a" and "b"`, `in "a" or not in "b"`, `after pay`. */
export function stateWords(states: readonly BoundState[], at: Preposition): string {
  const [only, ...others] = states;
  return only !== undefined && others.length === 0 ? place(only, at) : places(states, 'or', at);
}

function place(state: BoundState, at: Preposition): string {
  if (state === ANY_STATE) return 'in any state';
  if (typeof state === 'string') return `${at.word} ${at.say(state)}`;
  if ('tag' in state) return `in a state with the tag ${at.quote(state.tag)}`;
  if ('all' in state) return places(state.all, 'and', at);
  if ('any' in state) return places(state.any, 'or', at);
  const { not } = state;
  const isAtom = typeof not === 'string' || 'tag' in not;
  return isAtom ? `not ${place(not, at)}` : `not (${place(not, at)})`;
}

/** Of places that are named one after the other, the first one alone has the preposition. */
function places(states: readonly BoundState[], word: 'and' | 'or', at: Preposition): string {
  const said = states.map((each) => {
    const isGroup = typeof each === 'object' && ('all' in each || 'any' in each);
    return isGroup && states.length > 1 ? `(${place(each, at)})` : place(each, at);
  });
  const start = `${at.word} `;
  const isSaid = (text: string, i: number): boolean =>
    i > 0 && text.startsWith(start) && said[i - 1]?.startsWith(start) === true;
  return said
    .map((text, i) => (isSaid(text, i) ? text.slice(start.length) : text))
    .join(` ${word} `);
}
