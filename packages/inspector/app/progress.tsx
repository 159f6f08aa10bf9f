/** How far a run has come under rules of order, in a line above the diagram. */
import type { OrderProgress } from 'mcp-interlock-check';
import type { JSX } from 'preact';

const MOST_NAMES = 3;

export function Progress({ progress }: { readonly progress: OrderProgress }): JSX.Element {
  const { done, of, next } = progress;
  const more = next.length - MOST_NAMES;
  return (
    <p class="progress">
      <strong>
        {done.length} of {of} done
      </strong>
      {' · next: '}
      {next.slice(0, MOST_NAMES).map((tool, at) => (
        <span key={tool}>
          {at > 0 && ', '}
          <code>{tool}</code>
        </span>
      ))}
      {next.length === 0 && 'nothing'}
      {more > 0 && ` and ${more} more`}
    </p>
  );
}

/** What a tool's box says in its corner. */
export function pillOf({ done, next, missing }: OrderProgress, tool: string): string {
  if (done.includes(tool)) return 'done';
  if (next.includes(tool)) return 'next';
  const count = missing.get(tool)?.length ?? 0;
  return count === 0 ? '' : `needs ${count}`;
}

export function spokenOf({ next, missing }: OrderProgress, tool: string): string | undefined {
  if (next.includes(tool)) return 'can be called next';
  const names = missing.get(tool) ?? [];
  return names.length === 0 ? undefined : `needs ${names.join(', ')}`;
}
