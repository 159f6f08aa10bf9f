/**
 * What a program needs to draw a gate: the data that the graph, the diagram and the inspector
 * share.
 */
import type { Condition } from '../../../src/index.ts';

/** The kind of machine that a gate was made of. */
export type WorkflowKind = 'flat' | 'statechart' | 'order';

/** A workflow as plain JSON, to be drawn by any program: see {@link workflowGraph}. */
export interface WorkflowGraph {
  /** The workflow's id, as in `gate.id`. */
  readonly id: string;
  readonly kind: WorkflowKind;
  /**
   * The ids of the nodes that are active where every run begins, outermost first. None for rules of
   * order, where nothing is done at first.
   */
  readonly initial: readonly string[];
  /** Where else a run may begin: the gate's `starts`, in their order. */
  readonly starts: readonly GraphStart[];
  /**
   * In the order of the definition; each node stands behind the one around it. For rules of order
   * the tools, in the order of the rules, then the junctions.
   */
  readonly nodes: readonly GraphNode[];
  readonly edges: readonly GraphEdge[];
  /** Every bound tool, in binding order. */
  readonly tools: readonly GraphTool[];
}

/** A further state in which a run may begin. */
export interface GraphStart {
  /** As runs and trails name it. */
  readonly state: string;
  /** The node that it is; with parallel regions, the innermost one around all that are active. */
  readonly node: string;
}

/** A state; for rules of order a tool, or a junction that joins what a tool needs. */
export interface GraphNode {
  /**
   * The name that bindings give it: the state of a flat machine, a path of a statechart, a tool of
   * rules of order. Where the machine of a statechart itself has regions or transitions, it is one
   * more node around all others: `''`.
   */
  readonly id: string;
  /** Its own name, without those around it; for the node `''` the workflow's id. */
  readonly label: string;
  /** The id of the node around it; absent at the top. */
  readonly parent?: string;
  /**
   * - `history` means the states of its parent that were active last. No run is in it.
   * - `tool`, for rules of order: it is active while the run's state names a call of it. A tool
   *   that no rule and no binding asks for is never active, since runs do not remember it.
   * - `any` and `all`, for rules of order: a junction. It holds where one of the edges to it holds,
   *   or each of them. No run is in it.
   * - `folded`, only in what {@link foldGraph} returns: it replaces the nodes `inside`.
   */
  readonly type:
    | 'atomic'
    | 'compound'
    | 'parallel'
    | 'final'
    | 'history'
    | 'tool'
    | 'any'
    | 'all'
    | 'folded';
  /** For a folded node: the ids of the states, or tools, that it replaces. */
  readonly inside?: readonly string[];
  /** For a compound node: the id of the node inside in which it begins. */
  readonly initial?: string;
  /** The tags of a statechart's state; absent where it has none. */
  readonly tags?: readonly string[];
  /** After how many milliseconds a deadline takes a run out of it. */
  readonly after?: number;
  /** For a tool of rules of order: it is not available while it is done itself. */
  readonly once?: true;
  /** With `once`: what the run's state names while the tool is done. */
  readonly holds?: string;
}

/** A way from one state to another; for rules of order what `from` means to `to`. */
export interface GraphEdge {
  /** Unique in its graph, and the same each time for the same gate. */
  readonly id: string;
  readonly from: string;
  /** The same as `from` where the run stays, as for a transition of actions only. */
  readonly to: string;
  /**
   * What takes it:
   * - `event`; for rules of order: calls of `from` make `to` done, as a success of `to` does
   * - `deadline`: the time of its state has passed
   * - `always`: nothing; the machine takes it by itself
   * - `done`: all inside the state has ended
   *
   * For rules of order also what a tool needs. Lists show it where all edges to it of the first two
   * types hold. One that says `once` and is done is hidden, and so is one at its limit:
   * - `before`: holds while the run's state names what `holds` says, or where the junction `from`
   *   holds
   * - `unless`: holds while it does not name that
   * - `undoes`: a success of `from` undoes those of `to`
   *
   * An edge with `when` leaves other calls out. To a tool or to `all` it holds for them.
   * In an `any` the other edges decide, if there are any. An `unless` with `same` or `when`
   * hides no tool.
   */
  readonly type: 'event' | 'deadline' | 'always' | 'done' | 'before' | 'unless' | 'undoes';
  /**
   * The event's name, in a statechart perhaps a pattern such as `cart.*`; `''` where there is none.
   */
  readonly event: string;
  /** Whether it has a guard of the machine. */
  readonly isGuarded: boolean;
  /** For a deadline: its milliseconds. */
  readonly after?: number;
  /**
   * For a flat machine, where `to` is `from`: the run leaves the state and enters it again, so its
   * deadline begins anew.
   */
  readonly reenters?: true;
  /** For `before` and `unless` from a tool: which earlier calls of it count. */
  readonly calls?: GraphCalls;
  /** For `before` and `unless` from a tool: what the run's state names while such a call counts. */
  readonly holds?: string;
  /**
   * For `before`: a success of the tool that needs it uses up as many of these calls as are needed;
   * with `'calls'`, a failure too.
   */
  readonly consumes?: true | 'calls';
  /** For `before` and `unless`: it is only about calls whose own arguments meet this. */
  readonly when?: GraphCondition;
  /** For rules of order: all of that in words, as labels show it. */
  readonly says?: readonly string[];
  /** The tools whose calls may take it. So may `runs.send()`, which sends any event. */
  readonly tools: readonly EdgeTool[];
}

/** Which earlier calls of a tool count for an edge, as the rule says it. Absent: all successes. */
export interface GraphCalls {
  /** In milliseconds. */
  readonly within?: number;
  /** From paths of this call's arguments to those of the earlier call's, or of its result. */
  readonly same?: Readonly<Record<string, string | { readonly result: string }>>;
  readonly args?: GraphCondition;
  readonly result?: GraphCondition;
  readonly outcome?: 'failed' | 'any';
  /** At least so many of them; absent for one. */
  readonly times?: number;
  /** They count once for each value there. */
  readonly distinct?: string | { readonly result: string };
  /** Only those count that no other call has used up. */
  readonly unused?: true;
}

/** A condition as its rule says it; `true` means a function. */
export type GraphCondition = Condition | true;

/** How often a tool may be called in a run, or how much its calls may add up to. */
export interface GraphLimit {
  readonly times?: number;
  /** The path of the argument that is added up. */
  readonly sum?: string;
  /** As decimal digits: at most so much, or less than so much. */
  readonly max?: string;
  readonly below?: string;
  /** In milliseconds. */
  readonly within?: number;
  readonly same?: readonly string[];
  readonly when?: GraphCondition;
  readonly outcome?: 'failed' | 'any';
  /** All of that in words, as labels show it: `at most 5 in 5 minutes`. */
  readonly says: string;
}

/** A tool whose calls may take an edge. */
export interface EdgeTool {
  readonly name: string;
  /** Which outcome of a call sends the event. */
  readonly outcome: 'success' | 'failure';
  /** Whether a `guard` or `visible` of the tool's bindings may refuse the call. */
  readonly isGuarded: boolean;
  /** Whether only calls take it whose arguments the binding's `when` accepts. */
  readonly isPartial: boolean;
  /** Whether a function chooses the event for each call, and so may choose another one. */
  readonly isChosen: boolean;
  /**
   * Whether other states matter too: while `from` is active, the tool is not always available, or
   * sends another event at times.
   */
  readonly isPartly: boolean;
}

/**
 * A bound tool, and where it is available: nothing but a guard, of a binding or of the machine,
 * may refuse its calls there. Of the combinations of active states it counts all that the machine's
 * shape allows, though no run may ever come to some of them.
 *
 * For rules of order it names no nodes: the edges say what it needs.
 */
export interface GraphTool {
  readonly name: string;
  /**
   * It is available whenever one of these nodes is active. Where a node is here, those inside it
   * are left out.
   */
  readonly nodes: readonly string[];
  /**
   * While one of these is active and none of `nodes`, it is available at times. It may also need
   * other states, or only some of the calls that its bindings are about are allowed. Where none of
   * `nodes` and `partly` is active, it is not available. With too many combinations of states to
   * look at, a tool is here, too.
   */
  readonly partly: readonly string[];
  /** As `nodes`: where it is available, and its success takes no edge. */
  readonly stays: readonly string[];
  /** As `partly`: where it is available at times and its success takes no edge then. */
  readonly staysPartly: readonly string[];
  /**
   * Whether every binding has a `when`. Then the tool is listed in every state, and calls that no
   * binding is about are not gated. These lists speak of the
   * other calls.
   */
  readonly isPartial: boolean;
  /**
   * Whether a `guard` or `visible` of a binding may refuse its calls. What rules of order ask of a
   * call's values is none: the edge says it.
   */
  readonly isGuarded: boolean;
  /** Its limits, which may refuse its calls anywhere; absent where it has none. */
  readonly limits?: readonly GraphLimit[];
}

/** The nodes of a graph, and its edges before they are numbered. */
export interface Layout {
  readonly nodes: readonly GraphNode[];
  readonly edges: readonly Omit<GraphEdge, 'id'>[];
}
