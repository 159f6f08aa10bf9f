/** The tools that a model sees where a run stands, beside those that it does not, and why. */
import type { JSX } from 'preact';
import type { Standing, ToolNow, UnboundTools } from '../src/api.ts';
import { Icon } from './parts.tsx';

export interface ToolsProps {
  readonly standing: Standing;
  /** What can be done with a tool here, such as to choose its outcome. */
  readonly actions?: (tool: ToolNow) => JSX.Element;
}

export function Tools({ standing, actions }: ToolsProps): JSX.Element {
  const { state, tools, unbound } = standing;
  const seen = tools.filter(({ shown }) => shown);
  const unseen = tools.filter(({ shown }) => !shown);
  const others =
    unbound === undefined ? ' + others' : unbound.count > 0 ? ` + ${unbound.count} others` : '';
  return (
    <div class="tools">
      <div>
        <h3>
          <Icon name="eye" /> The model sees{' '}
          <span class="number">
            {seen.length} bound{others}
          </span>
        </h3>
        {list(seen, 'None of the bound tools.', actions)}
        <Others unbound={unbound} />
      </div>
      <div>
        <h3>
          <Icon name="hidden" /> It does not see <span class="number">{unseen.length} bound</span>
        </h3>
        {list(unseen, 'It sees all of them.')}
      </div>
    </div>
  );

  function list(
    listed: readonly ToolNow[],
    none: string,
    offered?: ToolsProps['actions'],
  ): JSX.Element {
    if (listed.length === 0) return <p class="empty">{none}</p>;
    return (
      <ul>
        {listed.map((tool) => (
          <Tool key={tool.tool} tool={tool} here={state} actions={offered} />
        ))}
      </ul>
    );
  }
}

/** The tools that no state hides, as far as they are known. */
function Others({ unbound }: { readonly unbound: UnboundTools | undefined }): JSX.Element | null {
  if (unbound === undefined)
    return (
      <p class="others">
        It also sees each tool of the server that this gate does not bind. Which these are is not
        known: no list of tools has passed this process yet.
      </p>
    );
  const { count, names } = unbound;
  if (count === 0) return null;
  const more = count - names.length;
  return (
    <p class="others" title="A client's own list may lack some of them.">
      It also sees what this gate does not bind. Lists have shown here:{' '}
      {names.map((name, at) => (
        <span key={name}>
          {at > 0 && ', '}
          <code>{name}</code>
        </span>
      ))}
      {more > 0 && ` and ${more} more`}.
    </p>
  );
}

interface ToolProps {
  readonly tool: ToolNow;
  readonly here: string;
  readonly actions: ToolsProps['actions'] | undefined;
}

function Tool({ tool, here, actions }: ToolProps): JSX.Element {
  const { refusal } = tool;
  const elsewhere = tool.leadsTo.filter((state) => state !== here);
  return (
    <li class={refusal === undefined ? 'tool-now' : 'tool-now refused'}>
      <div class="name">
        <code title={tool.tool}>{tool.tool}</code>
        {refusal !== undefined && tool.shown && <span class="reason">{refusal.reason}</span>}
        {refusal === undefined && actions?.(tool)}
      </div>
      {refusal !== undefined ? (
        <p class="says">{refusal.says}</p>
      ) : (
        elsewhere.length > 0 && (
          <p class="leads" title={elsewhere.join('\n')}>
            → {elsewhere.join(', ')}
          </p>
        )
      )}
    </li>
  );
}
