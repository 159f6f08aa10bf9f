/** A walk through the machine: choose what a call comes to, and see what a model would see then. */
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import type { ToolNow, WhatIf, WhatIfMove } from '../src/api.ts';
import type { Inspector } from './inspector.ts';
import { Icon, SharedData } from './parts.tsx';
import { Tools } from './standing.tsx';
import { inWords } from './words.ts';

export function WhatIfPanel({ inspector }: { readonly inspector: Inspector }): JSX.Element {
  const { walk, workflow, picked, run } = inspector;
  const key = workflow.value?.key;
  const steps = walk.steps.value;
  const last = steps.at(-1);
  useEffect(() => {
    if (key !== undefined && walk.steps.value.length === 0) void walk.begin(key, picked.value);
  }, [key, walk, picked.value]);
  const begin = (from?: string): void => {
    if (key !== undefined) void walk.begin(key, from);
  };
  return (
    <article class="what-if" aria-label="What if">
      <header class="heading">
        <div>
          <h2 title={last?.reached.state}>
            {last === undefined ? '…' : inspector.placeOf(last.reached)}
          </h2>
          {last?.reached.ended === true && <span class="badge ended">ended</span>}
        </div>
        <p class="small">Touches no run.</p>
        <div class="buttons">
          <button type="button" onClick={() => begin()}>
            From the beginning
          </button>
          <button
            type="button"
            disabled={picked.value === undefined}
            onClick={() => begin(picked.value)}
            title={run.value === undefined ? 'Pick a run first' : `Run ${run.value.value.digest}`}
          >
            From the picked run
          </button>
        </div>
      </header>
      {walk.error.value !== undefined && <p class="warning">{walk.error.value}</p>}
      <ol class="walked" aria-label="Steps so far">
        {steps.map((step, index) => (
          <li key={index}>
            <button
              type="button"
              aria-current={index === steps.length - 1 ? 'step' : undefined}
              title={`Back to ${step.reached.state}`}
              onClick={() => walk.backTo(index)}
            >
              <span>{step.move === undefined ? 'start' : nameOf(step.move)}</span>
              <small>{inspector.placeOf(step.reached)}</small>
            </button>
          </li>
        ))}
      </ol>
      <Answer inspector={inspector} />
      {last !== undefined && <Moves inspector={inspector} at={last.reached} />}
    </article>
  );
}

function nameOf(move: WhatIfMove): string {
  if ('deadline' in move) return 'time is over';
  if ('tool' in move) return `${move.tool} ${move.outcome === 'succeeded' ? '✓' : '✗'}`;
  return move.event;
}

/** What the last move came to, where it did not lead elsewhere. */
function Answer({ inspector }: { readonly inspector: Inspector }): JSX.Element {
  const { walk } = inspector;
  const answer = walk.answer.value;
  return (
    <div class="answer" aria-live="polite">
      {answer !== undefined && (
        <>
          <p>{saysOf(answer.move, answer.came)}</p>
          {answer.came.result === 'choose-event' && 'tool' in answer.move && (
            <div class="buttons">
              {answer.came.events.map((event) => (
                <button
                  type="button"
                  key={event}
                  onClick={() => void walk.move({ ...answer.move, event })}
                >
                  {event}
                </button>
              ))}
            </div>
          )}
        </>
      )}
    </div>
  );
}

function saysOf(move: WhatIfMove, came: WhatIf): string {
  switch (came.result) {
    case 'refused':
      return came.refusal?.says ?? 'The run is frozen, so nothing moves it.';
    case 'unhandled':
      return `The state does not know ${came.event ?? nameOf(move)}.`;
    case 'choose-event':
      return 'Which event it sends depends on the call. Choose one:';
    case 'stayed':
      return `${nameOf(move)}: the run stays where it is.`;
    default:
      return '';
  }
}

function Moves({
  inspector,
  at,
}: {
  readonly inspector: Inspector;
  readonly at: WhatIf;
}): JSX.Element {
  const { walk } = inspector;
  const outcomes = ({ tool }: ToolNow): JSX.Element => (
    <span class="outcomes">
      <button
        type="button"
        class="good"
        aria-label={`${tool} succeeds`}
        title="It succeeds"
        onClick={() => void walk.move({ tool, outcome: 'succeeded' })}
      >
        <Icon name="check" />
      </button>
      <button
        type="button"
        class="bad"
        aria-label={`${tool} fails`}
        title="It fails"
        onClick={() => void walk.move({ tool, outcome: 'failed' })}
      >
        <Icon name="cross" />
      </button>
    </span>
  );
  return (
    <>
      <Tools standing={at} actions={outcomes} />
      {(at.events.length > 0 || at.leavesInMs !== undefined) && (
        <section aria-label="From outside">
          <h3>
            <Icon name="event" /> From outside
          </h3>
          <div class="buttons">
            {at.events.map((event) => (
              <button type="button" key={event} onClick={() => void walk.move({ event })}>
                {event}
              </button>
            ))}
            {at.leavesInMs !== undefined && (
              <button type="button" onClick={() => void walk.move({ deadline: true })}>
                {inWords(at.leavesInMs)} pass
              </button>
            )}
          </div>
        </section>
      )}
      {at.actions.length > 0 && (
        <section aria-label="Actions">
          <h3>Actions that the machine asks for</h3>
          <p class="small">{at.actions.join(', ')}</p>
        </section>
      )}
      <SharedData data={at.data} />
    </>
  );
}
