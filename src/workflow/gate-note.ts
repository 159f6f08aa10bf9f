/**
 * A gate as data, so that it can be compared with the next one, and made again. Hides what becomes
 * of functions, and how large such a note may be.
 */
import { digestOf } from '../basics/digest.ts';
import { isTable } from '../basics/options.ts';
import type { Json } from '../stores/store.ts';
import type { AnyBinding } from './binding.ts';
import { StateMachineGate } from './gate.ts';
import type { Workflow } from './workflow.ts';

/** What is noted of a gate. */
export interface GateNote {
  /** The same for gates that say the same. Functions count by their names. */
  readonly digest: string;
  /** The gate's `version`, where it has one. */
  readonly version?: number;
  /** Its tools and globs. Empty where they are too long for a note. */
  readonly tools: readonly string[];
  /** The longest time that one of its rules looks back on, in milliseconds; 0: none does. */
  readonly windowMs: number;
  /** What the gate is made of. Absent for a statechart, and where it is too long for a note. */
  readonly made?: Json;
}

/** How many bytes a note has at most: it is kept with others in one document. */
const MOST_BYTES = 32_000;

/** What stands in a note for a function: its name. No path of a condition is called so. */
const FUNCTION = 'mcp-interlock/function';

/** What {@link GateNote.made} holds. */
interface Made {
  readonly rules?: unknown;
  readonly machine?: unknown;
  readonly limits?: unknown;
  /** What `bindTool()` was given, for tools that no rule is about. */
  readonly bindings: readonly (readonly [tool: string, states: unknown, options: unknown])[];
}

export function noteOf(workflow: Workflow): GateNote {
  const { order, version, toolNames } = workflow;
  const bound = toolNames.filter((tool) => order?.names.includes(tool) !== true);
  const bindings = bound.flatMap((tool) => workflow.bindingsOf(tool).map(givenTo));
  const { givenLimits: limits } = workflow;
  const of =
    order === undefined ? { machine: machineOf(workflow), limits } : (workflow.given as object);
  const made = JSON.stringify({ ...of, bindings }, (_, value: unknown) =>
    typeof value === 'function' ? { [FUNCTION]: value.name } : value,
  );
  const isChart = order === undefined && !workflow.model.isFlat;
  const fits = (text: string): boolean => Buffer.byteLength(text) <= MOST_BYTES;
  const tools = fits(JSON.stringify(toolNames)) ? toolNames : [];
  return {
    digest: digestOf([version ?? 0, made]).slice(0, 16),
    ...(version !== undefined && { version }),
    tools,
    windowMs: workflow.rules.longestWindow,
    ...(!isChart && fits(made + JSON.stringify(tools)) && { made: JSON.parse(made) as Json }),
  };
}

/** XState's machines refer to themselves; what they were made of does not. */
function machineOf({ model, given }: Workflow): unknown {
  return model.isFlat ? given : (given as { readonly config: unknown }).config;
}

function givenTo({ tool, states, isOk: _, kind: __, demands: ___, ...options }: AnyBinding) {
  return [tool, states, options] as const;
}

/**
 * A gate as the note says it. Its functions answer nothing. `undefined` where the note does not say
 * what the gate was made of, or an earlier version of this package wrote what is none today.
 */
export function gateOfNote(id: string, { made, version }: GateNote): StateMachineGate | undefined {
  if (!isTable(made)) return undefined;
  const { rules, machine, limits, bindings, ...said } = revived(made) as Made;
  try {
    const options = { ...(version !== undefined && { version }), ...(limits ? { limits } : {}) };
    const gate: StateMachineGate<string, string> =
      rules === undefined
        ? new StateMachineGate<string, string>(machine as never, options as never)
        : StateMachineGate.fromOrder(rules as never, { id, ...said, ...options } as never);
    for (const [tool, states, given] of bindings)
      gate.bindTool(tool, states as never, given as never);
    return gate;
  } catch {
    return undefined;
  }
}

/** The same with functions of the noted names. A name in a table may be `__proto__`. */
function revived(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(revived);
  if (!isTable(value)) return value;
  const name = value[FUNCTION];
  if (typeof name === 'string')
    return Object.defineProperty(() => undefined, 'name', { value: name });
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, revived(each)]));
}
