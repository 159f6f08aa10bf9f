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
      <div>
        <h3>
          <Icon name="eye" /> The model sees <span class="number">{seen.length}</span>
        </h3>
        {seen.length === 0 && <p class="empty">None of the bound tools.</p>}
        <ul>
          {seen.map((tool) => (
            <Tool key={tool.tool} tool={tool} here={standing.state} actions={actions} />
          ))}
        </ul>
      </div>
      <div>
        <h3>
          <Icon name="hidden" /> It does not see <span class="number">{unseen.length}</span>
        </h3>
        {unseen.length === 0 && <p class="empty">It sees all of them.</p>}
        <ul>
          {unseen.map((tool) => (
            <Tool key={tool.tool} tool={tool} here={standing.state} actions={undefined} />
          ))}
        </ul>
      </div>
    </div>
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
