/** One run: where it stands, what it waits for, how it came there, and what a person can do. */
import { useComputed } from '@preact/signals';
import { type ComponentChildren, Fragment, type JSX } from 'preact';
import { useRef, useState } from 'preact/hooks';
import type { ResolutionChoice, RunDetail, StepNow, TrailItem } from '../src/api.ts';
import type { Inspector, Seen } from './inspector.ts';
import { Badge, Icon, type IconName, SharedData, Time } from './parts.tsx';
import { Tools } from './standing.tsx';
import { AskedButton } from './stops.tsx';
import { atTime, inWords, many } from './words.ts';

/** Milliseconds since the answer came. */
function usePassed(inspector: Inspector, at: number): number {
  return useComputed(() => Math.max(0, inspector.tick.value - at)).value;
}

export function Run({ inspector }: { readonly inspector: Inspector }): JSX.Element {
  const { picked, run, runError, workflow } = inspector;
  if (picked.value === undefined) return <NoRun />;
  if (run.value === undefined)
    return runError.value === undefined ? (
      <div class="loading" aria-busy="true">
        <div class="ghost tall" />
        <div class="ghost" />
        <div class="ghost" />
      </div>
    ) : (
      <p class="empty bad">{runError.value}</p>
    );
  const seen = run.value;
  const { value } = seen;
  const canWrite = inspector.session.value?.can.write === true;
  return (
    <article class="run" aria-label={`Run ${value.digest}`}>
      <Heading inspector={inspector} run={value} />
      {runError.value !== undefined && <p class="warning">{runError.value}</p>}
      {value.fault !== undefined && <p class="warning">{value.fault}</p>}
      {value.frozen !== undefined && (
        <Frozen key={value.id} inspector={inspector} by={value.frozen} canWrite={canWrite} />
      )}
      <Now inspector={inspector} run={seen} />
      {value.status === 'held' && value.step !== undefined && canWrite && (
        <Resolve key={value.step.id} inspector={inspector} run={value} step={value.step} />
      )}
      {value.unsettled?.map((step) => (
        <Fragment key={step.id}>
          <section class="step unsettled" aria-label={`An unsettled call of ${step.tool}`}>
            <UnknownStep inspector={inspector} run={seen} step={step} />
          </section>
          {/* One that is tried again has an outcome soon. */}
          {canWrite && step.resolutions !== undefined && (
            <Resolve inspector={inspector} run={value} step={step} />
          )}
        </Fragment>
      ))}
      <section aria-label="Tools">
        <Tools standing={value} />
      </section>
      <section aria-label="Trail">
        <h3>How it came here</h3>
        <Trail inspector={inspector} now={value.now} />
      </section>
      <SharedData data={value.data} />
      {canWrite && (
        <section aria-label="Move it by hand">
          <h3>Move it by hand</h3>
          {value.events.length > 0 && !value.ended && (
            <SendEvent key={value.id} inspector={inspector} run={value} />
          )}
          <Endings key={`${value.id} endings`} inspector={inspector} run={value} />
        </section>
      )}
      <p class="small">
        workflow {workflow.value?.id}
        {workflow.value?.version !== undefined && ` version ${workflow.value.version}`}
      </p>
    </article>
  );
}

function NoRun(): JSX.Element {
  return (
    <div class="nothing">
      <h2>Pick a run</h2>
      <p>
        Its way lights up in the diagram. Here you see what its model can call now, what it cannot
        and why, and all that has happened to it.
      </p>
    </div>
  );
}

function Heading({
  inspector,
  run,
}: {
  readonly inspector: Inspector;
  readonly run: RunDetail;
}): JSX.Element {
  return (
    <header class="heading">
      <div>
        <h2 title={run.state}>{inspector.placeOf(run)}</h2>
        <RunBadge run={run} />
        {run.unsettled !== undefined && <Badge tone="stuck">unsettled</Badge>}
        {run.frozen !== undefined && <Badge tone="bad">stopped</Badge>}
        <button
          type="button"
          class="icon-button"
          aria-label="Close this run"
          onClick={() => inspector.chooseRun(undefined)}
        >
          <Icon name="close" />
        </button>
      </div>
      <p class="small">
        run <code>{run.digest}</code>
        {run.key !== undefined && (
          <>
            {' '}
            key <code>{run.key}</code>
          </>
        )}
        {` · ${run.version} ${run.version === 1 ? 'move' : 'moves'}`}
        {run.updatedAt !== undefined && ` · last at ${atTime(run.updatedAt, run.now)}`}
        {run.sessionEnded && ' · its session ended'}
        {run.beginsAnew && ' · the next call begins it anew'}
      </p>
    </header>
  );
}

function RunBadge({ run }: { readonly run: RunDetail }): JSX.Element {
  if (run.ended) return <Badge tone="ended">ended</Badge>;
  if (run.status === 'held') return <Badge tone="held">held</Badge>;
  if (run.status === 'running') return <Badge tone="running">running</Badge>;
  return <Badge tone="idle">idle</Badge>;
}

interface FrozenProps {
  readonly inspector: Inspector;
  readonly by: NonNullable<RunDetail['frozen']>;
  readonly canWrite: boolean;
}

function Frozen({ inspector, by, canWrite }: FrozenProps): JSX.Element {
  return (
    <section class="warning frozen" aria-label="This run is stopped">
      <p>
        <strong>Stopped</strong> by {by.actor}: {by.note}
      </p>
      {canWrite && (
        <AskedButton
          label="Let it go on …"
          kind="plain"
          title="Let this run go on?"
          says="Its calls go on. A deadline that has passed meanwhile takes effect with it."
          confirm="Let it go on"
          onReason={(note) => inspector.act('unfreeze', { note }, 'It goes on again.')}
        />
      )}
    </section>
  );
}

interface StepProps {
  readonly inspector: Inspector;
  readonly run: Seen<RunDetail>;
  readonly step: StepNow;
}

/** What goes on: always there, so that a call that begins moves nothing about. */
function Now({ inspector, run }: Omit<StepProps, 'step'>): JSX.Element {
  const { step, status } = run.value;
  const kind = step === undefined ? 'idle' : status;
  return (
    <section class={`step ${kind}`} aria-label="The call that has the run">
      {step === undefined ? (
        <p class="small">No call has the run now.</p>
      ) : status === 'held' ? (
        <UnknownStep inspector={inspector} run={run} step={step} />
      ) : (
        <RunningStep inspector={inspector} run={run} step={step} />
      )}
      {step === undefined && <Leaves inspector={inspector} run={run} />}
    </section>
  );
}

function RunningStep({ inspector, run, step }: StepProps): JSX.Element {
  const passed = usePassed(inspector, run.at);
  const { sinceMs = 0, leaseLeftMs = 0, actor } = step;
  const left = leaseLeftMs - passed;
  return (
    <>
      <p class="call">
        <Icon name="clock" />
        <span>
          <code>{step.tool}</code> is running
        </span>
        <span class="small">
          {inWords(sinceMs + passed)}
          {actor !== undefined && ` · ${actor}`}
        </span>
      </p>
      <div class="lease">
        <progress
          aria-label="What is left of the lease"
          max={Math.max(1, sinceMs + leaseLeftMs)}
          value={Math.max(0, left)}
        />
        <span>{left > 0 ? `lease ${(left / 1000).toFixed(1)} s` : 'lease is over'}</span>
      </div>
    </>
  );
}

/** What a tool said whose outcome the run does not have. */
const ANSWERS = {
  succeeded: 'that it succeeded; this was not saved',
  failed: 'that it failed; this was not saved',
  input_required: 'that it needs input; this was not saved',
} as const;

/** A call of unknown outcome: the one that holds the run, or one that may be repeated. */
function UnknownStep({ inspector, run, step }: StepProps): JSX.Element {
  const passed = usePassed(inspector, run.at);
  const { sinceMs, overdueMs, actor, requestId, idempotencyKey, amount, args, look } = step;
  const { answered } = step;
  const isHeld = step.id === run.value.step?.id;
  return (
    <>
      <p class="call">
        <Icon name="warning" />
        <span>
          <code>{step.tool}</code> ended with an unknown outcome{!isHeld && ', and may be repeated'}
        </span>
      </p>
      <dl>
        {answered !== undefined && (
          <Fact name="it answered">
            <strong>{ANSWERS[answered]}</strong>
          </Fact>
        )}
        {amount !== undefined && (
          <Fact name="amount">
            <strong>{amount}</strong>
          </Fact>
        )}
        {args !== undefined && (
          <Fact name="arguments">
            <code class="args">{typeof args === 'string' ? args : JSON.stringify(args)}</code>
          </Fact>
        )}
        {sinceMs !== undefined && <Fact name="called">{inWords(sinceMs + passed)} ago</Fact>}
        {isHeld && overdueMs !== undefined && (
          <Fact name="waits for a person">for {inWords(overdueMs + passed)}</Fact>
        )}
        {actor !== undefined && <Fact name="by">{actor}</Fact>}
        {requestId !== undefined && <Fact name="request">{requestId}</Fact>}
        {idempotencyKey !== undefined && (
          <Fact name="idempotency key">
            <Copied text={idempotencyKey} />
          </Fact>
        )}
        {look !== undefined && (
          <Fact name="look it up">
            <a href={look} target="_blank" rel="noopener noreferrer">
              {new URL(look).host}
            </a>
          </Fact>
        )}
      </dl>
    </>
  );
}

interface FactProps {
  readonly name: string;
  readonly children: ComponentChildren;
}

function Fact({ name, children }: FactProps): JSX.Element {
  return (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  );
}

function Copied({ text }: { readonly text: string }): JSX.Element {
  const [isCopied, setCopied] = useState(false);
  return (
    <span class="copied">
      <code title={text}>{text}</code>
      <button
        type="button"
        class="icon-button"
        aria-label={isCopied ? 'Copied' : 'Copy the idempotency key'}
        onClick={() => void navigator.clipboard?.writeText(text).then(() => setCopied(true))}
      >
        <Icon name={isCopied ? 'check' : 'copy'} />
      </button>
    </span>
  );
}

interface ResolveProps {
  readonly inspector: Inspector;
  readonly run: RunDetail;
  readonly step: StepNow;
}

function Resolve({ inspector, run, step }: ResolveProps): JSX.Element {
  const [outcome, setOutcome] = useState<ResolutionChoice['outcome']>();
  const [event, setEvent] = useState('');
  const [note, setNote] = useState('');
  const [isBusy, setBusy] = useState(false);
  const { resolutions: choices = [] } = step;
  const chosen = choices.find((choice) => choice.outcome === outcome);
  const needsEvent = chosen !== undefined && chosen.event === undefined;
  const isReady = chosen !== undefined && !isBusy && (!needsEvent || event !== '');
  const onSubmit = async (submitted: Event): Promise<void> => {
    submitted.preventDefault();
    if (!isReady) return;
    setBusy(true);
    const body = {
      outcome,
      step: step.id,
      ...(needsEvent && { event }),
      ...(note.trim() !== '' && { note: note.trim() }),
    };
    await inspector.act('resolve', body, `${step.tool} was resolved as ${outcome}.`);
    setBusy(false);
  };
  return (
    <form class="resolve" aria-label={`Resolve ${step.tool}`} onSubmit={onSubmit}>
      <fieldset>
        <legend>What did the call come to?</legend>
        {choices.map((choice) => (
          <label key={choice.outcome} class={`choice ${choice.outcome}`}>
            <input
              type="radio"
              name="outcome"
              value={choice.outcome}
              checked={outcome === choice.outcome}
              onChange={() => setOutcome(choice.outcome)}
            />
            <span>
              <strong>{choice.outcome === 'succeeded' ? 'It succeeded' : 'It failed'}</strong>
              <span class="leads" title={leadOf(choice)}>
                {leadOf(choice)}
              </span>
            </span>
          </label>
        ))}
      </fieldset>
      {needsEvent && (
        <EventChoice
          label="Which event does it send?"
          run={run}
          event={event}
          onChoice={setEvent}
        />
      )}
      <label class="field">
        Note for the trail
        <textarea
          rows={2}
          maxLength={2000}
          value={note}
          placeholder="Where you looked it up, and what you found"
          onInput={({ currentTarget }) => setNote(currentTarget.value)}
        />
      </label>
      <button type="submit" class="primary" disabled={!isReady}>
        {outcome === undefined ? 'Resolve' : `Resolve as ${outcome}`}
      </button>
    </form>
  );
}

interface EventChoiceProps {
  readonly label: string;
  readonly run: RunDetail;
  readonly event: string;
  readonly onChoice: (event: string) => void;
}

/** One of the events that the run's state knows. */
function EventChoice({ label, run, event, onChoice }: EventChoiceProps): JSX.Element {
  return (
    <label class="field">
      {label}
      <select value={event} onChange={({ currentTarget }) => onChoice(currentTarget.value)}>
        <option value="">Choose …</option>
        {run.events.map((name) => (
          <option key={name}>{name}</option>
        ))}
      </select>
    </label>
  );
}

function leadOf({ event, leadsTo }: ResolutionChoice): string {
  if (event === undefined) return 'you choose the event';
  if (event === null) return 'the run stays where it is';
  return leadsTo === undefined ? event : `${event} → ${leadsTo}`;
}

function Leaves({
  inspector,
  run,
}: {
  readonly inspector: Inspector;
  readonly run: Seen<RunDetail>;
}): JSX.Element | null {
  const passed = usePassed(inspector, run.at);
  const { leavesInMs } = run.value;
  if (leavesInMs === undefined) return null;
  return (
    <p class="leaves">
      <Icon name="clock" />
      {leavesInMs > passed
        ? `It leaves this state by itself in ${inWords(leavesInMs - passed)}.`
        : 'The time of this state is over: the next look at the run moves it.'}
    </p>
  );
}

const SIGNS: Readonly<Record<NonNullable<TrailItem['outcome']>, readonly [IconName, string]>> = {
  succeeded: ['check', 'good'],
  failed: ['cross', 'bad'],
  unknown: ['warning', 'bad'],
  refused: ['hidden', 'plain'],
  not_run: ['cross', 'plain'],
  input_required: ['clock', 'plain'],
};

function Trail({
  inspector,
  now,
}: {
  readonly inspector: Inspector;
  readonly now: number;
}): JSX.Element {
  const { entries, before } = inspector.trail();
  if (entries.length === 0) return <p class="empty">Nothing has happened to it yet.</p>;
  return (
    <>
      <ol class="trail">
        {foldedRefusals(entries).map(([entry, ...more], at, groups) => {
          const older = groups[at + 1]?.[0];
          const shown = { inspector, now, older };
          return more.length === 0 ? (
            <Entry key={entry.seq} {...shown} entry={entry} />
          ) : (
            <Refusals key={entry.seq} {...shown} refused={[entry, ...more]} />
          );
        })}
      </ol>
      {before !== undefined && (
        <button type="button" onClick={() => void inspector.loadOlder()}>
          Older entries
        </button>
      )}
    </>
  );
}

type Together = readonly [TrailItem, ...TrailItem[]];

/** Three and more refusals in a row are one line: what moved the run should be in sight. */
function foldedRefusals(entries: readonly TrailItem[]): readonly Together[] {
  const groups: Together[] = [];
  let refused: TrailItem[] = [];
  const end = (): void => {
    const [first, ...more] = refused;
    if (first !== undefined && more.length >= 2) groups.push([first, ...more]);
    else groups.push(...refused.map((entry): Together => [entry]));
    refused = [];
  };
  for (const entry of entries) {
    if (entry.outcome === 'refused') refused.push(entry);
    else {
      end();
      groups.push([entry]);
    }
  }
  end();
  return groups;
}

interface RefusalsProps extends Omit<EntryProps, 'entry'> {
  readonly refused: Together;
}

function Refusals({ refused, ...shown }: RefusalsProps): JSX.Element {
  const tools = [...new Set(refused.map(({ tool }) => tool))].join(', ');
  return (
    <li class="plain">
      <span class="sign-of">
        <Icon name="hidden" />
      </span>
      <details>
        <summary>
          {many(refused.length, 'refusal')} of <code>{tools}</code>
        </summary>
        <ol class="trail">
          {refused.map((entry, at) => (
            <Entry
              key={entry.seq}
              {...shown}
              entry={entry}
              older={refused[at + 1] ?? shown.older}
            />
          ))}
        </ol>
      </details>
    </li>
  );
}

interface EntryProps {
  readonly inspector: Inspector;
  readonly entry: TrailItem;
  /** What happened before it. */
  readonly older: TrailItem | undefined;
  readonly now: number;
}

function Entry({ inspector, entry, older, now }: EntryProps): JSX.Element {
  const [icon, tone] =
    entry.outcome === undefined ? (['event', 'plain'] as const) : SIGNS[entry.outcome];
  const { tool, event, from, to, attempt, kind } = entry;
  return (
    <li class={tone}>
      <span class="sign-of">
        <Icon name={icon} />
      </span>
      <div>
        <p class="line">
          <code title={tool ?? event ?? undefined}>{tool ?? event ?? kind ?? 'moved'}</code>
          {older !== undefined && entry.at - older.at >= 1000 && (
            <span class="after">{inWords(entry.at - older.at)} later</span>
          )}
          <Time at={entry.at} now={now} />
        </p>
        {to === undefined || to === from ? (
          <p class="says">{entry.says}</p>
        ) : (
          <p class="leads" title={entry.says}>
            {entry.outcome !== undefined && `${entry.outcome.replace('_', ' ')}: `}
            {inspector.placeOf({ state: from, active: entry.fromActive })} →{' '}
            {inspector.placeOf({ state: to, active: entry.toActive ?? [] })}
          </p>
        )}
        {(attempt > 1 || entry.actor !== undefined) && (
          <p class="small">
            {[entry.actor !== undefined && `by ${entry.actor}`, attempt > 1 && `attempt ${attempt}`]
              .filter(Boolean)
              .join(' · ')}
          </p>
        )}
        {entry.args !== undefined && (
          <p class="small">
            with <code>{JSON.stringify(entry.args)}</code>
          </p>
        )}
        {entry.errors?.map((error) => {
          const text = typeof error === 'string' ? error : JSON.stringify(error);
          return (
            <p key={text} class="small">
              because <code>{text}</code>
            </p>
          );
        })}
        {entry.note !== undefined && <blockquote>{entry.note}</blockquote>}
      </div>
    </li>
  );
}

function SendEvent({
  inspector,
  run,
}: {
  readonly inspector: Inspector;
  readonly run: RunDetail;
}): JSX.Element {
  const [event, setEvent] = useState('');
  const [payload, setPayload] = useState('');
  const [fault, setFault] = useState<string>();
  const onSubmit = async (submitted: Event): Promise<void> => {
    submitted.preventDefault();
    if (event === '') return;
    let parsed: unknown;
    try {
      parsed = payload.trim() === '' ? undefined : JSON.parse(payload);
    } catch {
      setFault('The payload is not JSON.');
      return;
    }
    setFault(undefined);
    const body = { event, version: run.version, ...(parsed !== undefined && { payload: parsed }) };
    if (!(await inspector.act('send', body, `${event} was sent.`))) return;
    setPayload('');
    setEvent('');
  };
  return (
    <form class="send" aria-label="Send an event" onSubmit={onSubmit}>
      <EventChoice label="Event" run={run} event={event} onChoice={setEvent} />
      <label class="field">
        Payload
        <input
          type="text"
          value={payload}
          placeholder='JSON, such as {"by":"Kim"}'
          spellcheck={false}
          onInput={({ currentTarget }) => setPayload(currentTarget.value)}
        />
      </label>
      <button
        type="submit"
        disabled={event === '' || run.status !== 'idle' || run.frozen !== undefined}
      >
        Send
      </button>
      {fault !== undefined && <p class="warning">{fault}</p>}
    </form>
  );
}

/** What cannot be undone asks first. */
function Endings({
  inspector,
  run,
}: {
  readonly inspector: Inspector;
  readonly run: RunDetail;
}): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const [deed, setDeed] = useState<'restart' | 'delete'>('restart');
  const ask = (what: 'restart' | 'delete'): void => {
    setDeed(what);
    dialog.current?.showModal();
  };
  const isFree = run.status === 'idle' && run.frozen === undefined;
  const onSubmit = async (submitted: Event): Promise<void> => {
    submitted.preventDefault();
    dialog.current?.close();
    if (deed === 'restart')
      await inspector.act('restart', { version: run.version }, 'It began anew.');
    else await inspector.act('delete', { digest: run.digest }, `Run ${run.digest} was deleted.`);
  };
  return (
    <div class="endings">
      {run.frozen === undefined && (
        <AskedButton
          label="Stop this run …"
          kind="danger"
          title="Stop this run?"
          says={
            'Its calls, prompts and resources are refused at once, and it takes no event and no ' +
            'deadline. A step that is running goes on, and is saved.'
          }
          confirm="Stop this run"
          onReason={(note) => inspector.act('freeze', { note }, 'It is stopped.')}
        />
      )}
      <button type="button" disabled={!isFree} onClick={() => ask('restart')}>
        Begin anew …
      </button>
      <button
        type="button"
        class="danger"
        disabled={run.status === 'held'}
        onClick={() => ask('delete')}
      >
        Delete …
      </button>
      <dialog ref={dialog} aria-label={deed === 'restart' ? 'Begin anew' : 'Delete the run'}>
        <form onSubmit={onSubmit}>
          <h2>{deed === 'restart' ? 'Begin this run anew?' : 'Delete this run?'}</h2>
          <p>
            {deed === 'restart'
              ? 'It goes back to where every run begins, with its first data. Its trail goes on.'
              : 'It ends with all its workflows, its data and its trail. ' +
                'A step that is running and may be repeated is not stopped.'}
          </p>
          <p class="small">
            run <code>{run.digest}</code> in {inspector.placeOf(run)}
          </p>
          <div class="buttons">
            <button type="button" onClick={() => dialog.current?.close()}>
              Leave it as it is
            </button>
            <button type="submit" class={deed === 'delete' ? 'danger' : 'primary'}>
              {deed === 'restart' ? 'Begin anew' : 'Delete'}
            </button>
          </div>
        </form>
      </dialog>
    </div>
  );
}
