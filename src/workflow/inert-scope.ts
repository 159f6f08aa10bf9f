/** An action that a machine came upon, as XState hands it to whoever runs it. */
export interface FoundAction {
  readonly type: string;
  readonly params?: unknown;
}

/** More steps than this for one event mean that the machine never comes to rest. */
const MOST_STEPS = 1000;

/** Told where an event would keep a machine busy for ever. */
export class Restless extends Error {
  override readonly name = 'Restless';
}

/**
 * What XState asks for around a transition (its `ActorScope`), without an actor: actions are
 * collected and not run, and whatever would need an actor throws.
 */
export function inertScope(found: (action: FoundAction) => void): object {
  const nothing = (): void => {};
  let steps = 0;
  const system = {
    _sendInspectionEvent() {
      steps++;
      if (steps > MOST_STEPS) throw new Restless(`it did not come to rest in ${MOST_STEPS} steps`);
    },
  };
  return {
    self: NOBODY,
    system,
    id: '',
    sessionId: '',
    logger: nothing,
    defer: nothing,
    emit: nothing,
    stopChild: nothing,
    actionExecutor: found,
  };
}

/** In place of the actor that there is not. */
const NOBODY: object = new Proxy(Object.freeze({}), {
  get() {
    throw new Error('no actor runs here, so nothing can be spawned, and nothing sent to one');
  },
});
