import { nearestName } from '../names.ts';
import type { Uncertain } from '../stores/store.ts';
import type { MirroredArguments } from '../wire/headers.ts';
import { isObject } from '../wire/json-rpc.ts';
import { ToolHints } from '../wire/pages.ts';
import type { Workflow } from '../workflow/workflow.ts';

/** Never more names than this are remembered of an upstream that keeps making up new ones. */
const MAX_NAMES = 10_000;

/** Mirrored arguments are not looked for any deeper. */
const DEEPEST = 16;

type Warn = (warning: string) => void;

/** What an upstream lists of one kind, to warn of bindings that gate nothing. */
export class ListedNames {
  readonly #gate: string;
  readonly #bound: readonly string[];
  readonly #names = new Set<string>();
  #checked = false;

  constructor(gate: string, bound: readonly string[]) {
    this.#gate = gate;
    this.#bound = bound;
  }

  /**
   * Takes note of one page, as the upstream sent it. `warn` is told once, at the last one, of what
   * is bound and not listed.
   */
  note(page: readonly unknown[], isLastPage: boolean, warn: Warn): void {
    for (const element of page) {
      const name = isObject(element) ? element.name : undefined;
      if (typeof name === 'string' && this.#names.size < MAX_NAMES) this.#names.add(name);
    }
    if (!isLastPage || this.#checked) return;
    this.#checked = true;
    for (const bound of this.#bound) if (!this.#names.has(bound)) warn(this.#missing(bound));
  }

  #missing(bound: string): string {
    const nearest = nearestName(bound, this.#names);
    return (
      `the gate "${this.#gate}" binds "${bound}", which the upstream does not list, so nothing is gated by it` +
      (nearest === undefined ? '.' : `. Did you mean "${nearest}"?`)
    );
  }
}

/** What the upstream's lists have taught this process about its tools. */
export class ListedTools {
  readonly #names: ListedNames;
  readonly #hints = new ToolHints();
  readonly #mirrored = new Map<string, MirroredArguments>();
  readonly #workflow: Workflow;
  #changes = 0;

  constructor(workflow: Workflow) {
    this.#workflow = workflow;
    this.#names = new ListedNames(workflow.id, workflow.toolNames);
  }

  /** As {@link ToolHints.version}. */
  get version(): number {
    return this.#hints.version + this.#changes;
  }

  /** As {@link ListedNames.note}. */
  note(page: readonly unknown[], isLastPage: boolean, warn: Warn): void {
    this.#hints.note(page);
    for (const tool of page) {
      if (!isObject(tool) || typeof tool.name !== 'string') continue;
      if (!this.#workflow.isBound(tool.name)) continue;
      const mirrored = mirroredIn(tool.inputSchema);
      if (areSame(mirrored, this.#mirrored.get(tool.name))) continue;
      this.#mirrored.set(tool.name, mirrored);
      this.#changes++;
    }
    this.#names.note(page, isLastPage, warn);
  }

  /**
   * What may happen after an unknown outcome, by the tool's annotations. Not to be repeated, until
   * a list has said otherwise.
   */
  uncertainOf(tool: string): Uncertain {
    return this.#hints.isRepeatable(tool) ? 'retry' : 'hold';
  }

  /**
   * Which arguments of a bound tool its callers repeat in headers; `undefined` until a list has
   * said so.
   */
  mirroredOf(tool: string): MirroredArguments | undefined {
    return this.#mirrored.get(tool);
  }
}

function areSame(one: MirroredArguments, other: MirroredArguments | undefined): boolean {
  return other !== undefined && JSON.stringify([...one]) === JSON.stringify([...other]);
}

/**
 * "Statically reachable" are only properties of properties (MCP 2026-07-28, Streamable HTTP,
 * "Schema Extension").
 */
function mirroredIn(schema: unknown): MirroredArguments {
  const found = new Map<string, readonly string[]>();
  const rest: [schema: unknown, path: readonly string[]][] = [[schema, []]];
  for (let next = rest.pop(); next !== undefined; next = rest.pop()) {
    const [node, path] = next;
    if (!isObject(node)) continue;
    const header = node['x-mcp-header'];
    if (typeof header === 'string' && path.length > 0) found.set(header.toLowerCase(), path);
    if (!isObject(node.properties) || path.length === DEEPEST) continue;
    for (const [key, inner] of Object.entries(node.properties)) rest.push([inner, [...path, key]]);
  }
  return found;
}
