/** The tools that a model sees where a run stands, beside those that it does not, and why. */
import type { JSX } from 'preact';
import type { Standing, ToolNow } from '../src/api.ts';
import { Icon } from './parts.tsx';

export interface ToolsProps {
  readonly standing: Standing;
  /** What can be done with a tool here, such as to choose its outcome. */
  readonly actions?: (tool: ToolNow) => JSX.Element;
}

export function Tools({ standing, actions }: ToolsProps): JSX.Element {
  const seen = standing.tools.filter(({ shown }) => shown);
  const unseen = standing.tools.filter(({ shown }) => !shown);
  return (
    <div class="tools">
      {column('eye', 'The model sees', seen, 'None of the bound tools.', actions)}
      {column('hidden', 'It does not see', unseen, 'It sees all of them.')}
    </div>
  );

  function column(
    icon: 'eye' | 'hidden',
    title: string,
    tools: readonly ToolNow[],
    none: string,
    offered?: ToolsProps['actions'],
  ): JSX.Element {
    return (
      <div>
        <h3>
          <Icon name={icon} /> {title} <span class="number">{tools.length}</span>
        </h3>
        {tools.length === 0 && <p class="empty">{none}</p>}
        <ul>
          {tools.map((tool) => (
            <Tool key={tool.tool} tool={tool} here={standing.state} actions={offered} />
          ))}
        </ul>
      </div>
    );
  }
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
