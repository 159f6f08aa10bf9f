/**
 * What operators have stopped: the button that stops calls, the bar for as long as they are
 * stopped, and the dialog without whose reason nothing is stopped or let go on.
 */
import type { ComponentChildren, JSX } from 'preact';
import { useRef, useState } from 'preact/hooks';
import type { StoppedCalls, WorkflowSummary } from '../src/api.ts';
import type { Inspector } from './inspector.ts';
import { Icon, Time } from './parts.tsx';

interface AskedProps {
  /** What the button says. */
  readonly label: ComponentChildren;
  readonly kind: 'danger' | 'plain';
  readonly title: string;
  /** What comes of it. */
  readonly says: string;
  /** What the button of the dialog says. */
  readonly confirm: string;
  /** Further fields of the dialog. */
  readonly children?: ComponentChildren;
  /** Does it. Resolves to whether it is done. */
  readonly onReason: (note: string) => Promise<boolean>;
}

/** A button that does nothing before its dialog was given a reason. */
export function AskedButton(props: AskedProps): JSX.Element {
  const { label, kind, title, says, confirm, children, onReason } = props;
  const dialog = useRef<HTMLDialogElement>(null);
  const [note, setNote] = useState('');
  const [isBusy, setBusy] = useState(false);
  const isReady = note.trim() !== '' && !isBusy;
  const onSubmit = async (submitted: Event): Promise<void> => {
    submitted.preventDefault();
    if (!isReady) return;
    setBusy(true);
    const isDone = await onReason(note.trim());
    setBusy(false);
    dialog.current?.close();
    if (isDone) setNote('');
  };
  return (
    <>
      <button
        type="button"
        class={kind === 'danger' ? 'danger asked' : 'asked'}
        onClick={() => dialog.current?.showModal()}
      >
        {label}
      </button>
      <dialog ref={dialog} aria-label={title}>
        <form onSubmit={onSubmit}>
          <h2>{title}</h2>
          <p>{says}</p>
          {children}
          <label class="field">
            Reason
            <textarea
              rows={2}
              maxLength={2000}
              required
              value={note}
              placeholder="For those who look later, and for the next shift"
              onInput={({ currentTarget }) => setNote(currentTarget.value)}
            />
          </label>
          <div class="buttons">
            <button type="button" onClick={() => dialog.current?.close()}>
              Leave it as it is
            </button>
            <button
              type="submit"
              class={kind === 'danger' ? 'danger' : 'primary'}
              disabled={!isReady}
            >
              {confirm}
            </button>
          </div>
        </form>
      </dialog>
    </>
  );
}

/** Nothing where all is stopped already, the visitor may not act, or the store has no switches. */
export function StopCalls({ inspector }: { readonly inspector: Inspector }): JSX.Element | null {
  const [tool, setTool] = useState('');
  const { workflow, workflows, session } = inspector;
  const shown = workflow.value;
  const stopped = workflows.value.find(({ key }) => key === shown?.key)?.stopped;
  if (shown === undefined || stopped === undefined || session.value?.can.write !== true)
    return null;
  if (stopped.some((each) => each.tool === undefined)) return null;
  const free = shown.tools.filter((name) => stopped.every((each) => each.tool !== name));
  const chosen = free.includes(tool) ? tool : '';
  return (
    <AskedButton
      label={
        <>
          <Icon name="stop" />
          <span>Stop all calls …</span>
        </>
      }
      kind="danger"
      title={`Stop calls of ${shown.id}?`}
      says={
        'Within a second no instance forwards one more, and models read so. Calls that were ' +
        'forwarded before go on, and are saved.'
      }
      confirm={chosen === '' ? 'Stop all calls' : `Stop calls of ${chosen}`}
      onReason={(note) =>
        inspector.switchCalls('freeze', shown.key, { note, ...(chosen !== '' && { tool: chosen }) })
      }
    >
      <label class="field">
        Which
        <select value={chosen} onChange={({ currentTarget }) => setTool(currentTarget.value)}>
          <option value="">All calls of bound tools, in all runs</option>
          {free.map((name) => (
            <option key={name} value={name}>
              Calls of {name}, in all runs
            </option>
          ))}
        </select>
      </label>
    </AskedButton>
  );
}

/** There for as long as calls of any workflow are stopped. */
export function Stops({ inspector }: { readonly inspector: Inspector }): JSX.Element | null {
  const stops = inspector.workflows.value.flatMap((workflow) =>
    (workflow.stopped ?? []).map((stopped) => ({ workflow, stopped })),
  );
  if (stops.length === 0) return null;
  return (
    <section class="stops" aria-label="What is stopped">
      {stops.map(({ workflow, stopped }) => (
        <Stop
          key={`${workflow.key} ${stopped.tool ?? ''} ${stopped.at}`}
          inspector={inspector}
          workflow={workflow}
          stopped={stopped}
        />
      ))}
    </section>
  );
}

interface StopProps {
  readonly inspector: Inspector;
  readonly workflow: WorkflowSummary;
  readonly stopped: StoppedCalls;
}

function Stop({ inspector, workflow, stopped }: StopProps): JSX.Element {
  const { tool, actor, note, at } = stopped;
  const what = tool === undefined ? `all calls of ${workflow.id}` : `calls of ${tool}`;
  const others = (workflow.stopped ?? []).flatMap((each) => each.tool ?? []);
  const also =
    tool === undefined && others.length > 0
      ? ` So do calls of ${others.join(', ')}, which were stopped by themselves.`
      : '';
  return (
    <div class="stop">
      <Icon name="stop" />
      <p role="alert">
        <strong>{what[0]?.toUpperCase() + what.slice(1)} are stopped</strong>{' '}
        <span>
          since <Time at={at} now={Date.now()} /> by {actor}
          {tool !== undefined && `, in ${workflow.id}`}
        </span>
        <span class="why">{note}</span>
      </p>
      {inspector.session.value?.can.write === true && (
        <AskedButton
          label={tool === undefined ? 'Let all go on …' : 'Let them go on …'}
          kind="plain"
          title={`Let ${what} go on?`}
          says={`They go on within a second, on all instances.${also}`}
          confirm="Let them go on"
          onReason={(reason) =>
            inspector.switchCalls('unfreeze', workflow.key, {
              note: reason,
              at,
              ...(tool !== undefined && { tool }),
            })
          }
        />
      )}
    </div>
  );
}
