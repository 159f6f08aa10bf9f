import { InterlockError } from '../errors.ts';
import { rightNames } from '../nearest.ts';
import { showValue } from '../options.ts';
import { type AnyBinding, namedEvents } from './binding.ts';
import { isReserved } from './chart-events.ts';
import type { BoundState, Model } from './position.ts';

/**
 * Checks a binding against the workflow.
 *
 * @throws InterlockError `ERR_INTERLOCK_BINDING` for a state or a tag that the workflow does not
 * have; for a statechart `ERR_INTERLOCK_EVENT` for an event that nothing in it handles
 */
export function checkBinding(model: Model, binding: AnyBinding): void {
  const { tool, states } = binding;
  checkStates(model, `tool ${showValue(tool)}`, states);
  if (model.isFlat) return;
  for (const event of namedEvents(binding)) {
    if (!isReserved(event) && model.handlers(event).length > 0) continue;
    const message = `workflow "${model.id}": tool ${showValue(tool)} sends ${showValue(event)}, which no state handles`;
    throw new InterlockError(
      'ERR_INTERLOCK_EVENT',
      `${message}; ${rightNames(event, model.events)}`,
    );
  }
}

/**
 * @throws InterlockError `ERR_INTERLOCK_BINDING` for a state or a tag that the workflow does not
 * have.
 */
export function checkStates(model: Model, what: string, states: readonly BoundState[]): void {
  for (const state of states) {
    const [name, known, kind] =
      typeof state === 'string' ? [state, model.names, 'state'] : [state.tag, model.tags, 'tag'];
    if (known.includes(name)) continue;
    const fault = `${showValue(name)}, which is no ${kind} of workflow "${model.id}"`;
    const message = `${what} is bound to ${fault}, ${rightNames(name, known)}`;
    throw new InterlockError('ERR_INTERLOCK_BINDING', message);
  }
}

/**
 * What is odd about binding a tool again: the new bindings do not replace the old ones. That is
 * meant where `when` tells the calls apart, and within one declaration.
 */
export function rebindingWarnings(
  model: Model,
  known: readonly AnyBinding[],
  added: readonly AnyBinding[],
): string[] {
  const isWhole = ({ when }: AnyBinding): boolean => when === undefined;
  if (!known.some(isWhole) || !added.some(isWhole)) return [];
  const tool = showValue(known[0]?.tool);
  const states = [...known, ...added].flatMap((binding) => binding.states);
  const names = new Set(
    states.map((each) =>
      typeof each === 'string' ? showValue(each) : `tag ${showValue(each.tag)}`,
    ),
  );
  return [
    `workflow "${model.id}": tool ${tool} is bound again, ` +
      'which adds to its binding and does not replace it: ' +
      `now it is available in ${[...names].join(', ')}. ` +
      `If that is meant, say it at once: bind(tool(${tool}).bindState(…).bindState(…))`,
  ];
}

/**
 * What is odd about a binding without being wrong: an event that none of its states handles moves
 * nothing.
 */
export function bindingWarnings(model: Model, binding: AnyBinding): string[] {
  return namedEvents(binding).flatMap((event) => {
    const handling = model.handlers(event);
    if (model.canBeIn(binding.states, handling)) return [];
    const message = `workflow "${model.id}": tool ${showValue(binding.tool)} sends ${showValue(event)}, which`;
    return handling.length === 0
      ? `${message} no state handles; ${rightNames(event, model.events)}`
      : `${message} none of its states handles; states that do are ${handling.map(showValue).join(', ')}`;
  });
}
