import { isObject } from './json-rpc.ts';
import type { Message } from './message.ts';
import { Note } from './note.ts';

type Pages = Readonly<Record<string, readonly unknown[]>>;

const pages = new Note<Message, Pages>();

/**
 * One page of a list as the upstream sent it, whatever gates on the route have taken out of it
 * since. Each of them asks before it changes the list itself.
 */
export function pageAsSent(message: Message, member: string): readonly unknown[] {
  const kept = pages.of(message)?.[member];
  if (kept !== undefined) return kept;
  const now = message.at('result', member);
  const page: readonly unknown[] = Array.isArray(now) ? now : [];
  pages.put(message, { ...pages.of(message), [member]: page });
  return page;
}

/** Never more tools than this are remembered of an upstream that keeps making up new ones. */
const MAX_TOOLS = 10_000;

/** What a tool may do, by its annotations: `readOnlyHint`, `idempotentHint`, or neither. */
type Hint = 'read-only' | 'idempotent' | 'none';

/**
 * What lists have taught this process of their tools' annotations (MCP, Tools, "ToolAnnotations").
 * A tool that no list has shown yet has no hint.
 */
export class ToolHints {
  readonly #hints = new Map<string, Hint>();

  /** Takes note of one page. */
  note(tools: readonly unknown[]): void {
    for (const tool of tools) {
      if (!isObject(tool) || typeof tool.name !== 'string') continue;
      if (this.#hints.size < MAX_TOOLS || this.#hints.has(tool.name))
        this.#hints.set(tool.name, hintOf(tool.annotations));
    }
  }

  /** Whether it changes nothing. */
  isReadOnly(tool: string): boolean {
    return this.#hints.get(tool) === 'read-only';
  }

  /** Whether it may run once more with the same arguments. */
  isRepeatable(tool: string): boolean {
    return (this.#hints.get(tool) ?? 'none') !== 'none';
  }
}

function hintOf(annotations: unknown): Hint {
  if (!isObject(annotations)) return 'none';
  if (annotations.readOnlyHint === true) return 'read-only';
  return annotations.idempotentHint === true ? 'idempotent' : 'none';
}
