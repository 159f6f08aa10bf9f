/** The list of runs: those that wait for a person first. Only the rows in sight are there. */
import { useComputed } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { RunSummary, StepNow } from '../src/api.ts';
import {
  callsOf,
  type Inspector,
  type ListedRun,
  type ListKind,
  type RunList,
  runName,
  type Search,
} from './inspector.ts';
import { Observed } from './observed.tsx';
import { Badge, Icon } from './parts.tsx';
import { counted, countedShort, inWords, keyInWords, many } from './words.ts';

const ROW = 58;
/** Long names often differ in their ends alone, so as many characters are never cut off. */
const LAST = 8;
/** How many rows are there beyond each end of what is in sight. */
const SPARE = 6;

export function Runs({ inspector }: { readonly inspector: Inspector }): JSX.Element {
  const { list, counts, workflow } = inspector;
  const { kind, state, search, unreached } = list.value;
  const { held = 0, unsettled, stuck = 0, runs = 0, stuckAfterMs } = counts.value ?? {};
  const key = workflow.value?.key;
  const { resolved = 0 } = inspector.workflows.value.find((each) => each.key === key) ?? {};
  const isLost = inspector.reception.value === 'lost';
  const trouble = troubleOf(inspector);
  const kinds: readonly (readonly [ListKind, string, number | undefined, string])[] = [
    [
      'held',
      'Held',
      held,
      'A step ended with an unknown outcome: a person must say what it came to',
    ],
    [
      'unsettled',
      'Unsettled',
      unsettled,
      'A call has an unknown outcome and may be repeated: its run goes on',
    ],
    [
      'stuck',
      'Stuck',
      stuck,
      stuckAfterMs === undefined ? 'Not moved for long' : `Not moved for ${inWords(stuckAfterMs)}`,
    ],
    ['open', 'Open', runs, 'All runs that have not ended, the longest unmoved first'],
    ['resolved', 'Resolved', resolved, 'What a person said of such calls, the newest first'],
  ];
  return (
    <section class="runs" aria-label="Runs">
      <div class="kinds" role="group" aria-label="Which runs">
        {kinds.map(([name, title, count, says]) => (
          <button
            type="button"
            key={name}
            class={`${name} ${count ? 'some' : ''}`}
            aria-pressed={kind === name}
            title={says}
            onClick={() => inspector.chooseList(name)}
          >
            {title}
            <span class="number">
              {counts.value === undefined || count === undefined || isLost
                ? '–'
                : countedShort(count)}
            </span>
          </button>
        ))}
      </div>
      <div class="filter">
        {state === undefined ? (
          <SearchRuns inspector={inspector} search={search} />
        ) : (
          <button type="button" class="chip" onClick={() => inspector.chooseList(kind)}>
            <span>
              in <strong>{state}</strong>
            </span>
            <Icon name="close" />
            <span class="hidden-text">Show runs in all states</span>
          </button>
        )}
      </div>
      {workflow.value?.store === 'no-index' && kind !== 'found' ? (
        <p class="empty">
          This store keeps no index of its runs, so they cannot be listed. A run can be found by its
          key.
        </p>
      ) : (
        <Rows
          inspector={inspector}
          list={list.value}
          trouble={trouble}
          total={kind === 'open' && state === undefined ? runs : undefined}
        />
      )}
      {trouble !== undefined && list.value.rows.length > 0 && <p class="hint bad">{trouble}</p>}
      {kind === 'held' && held > 0 && (
        <p class="hint">
          It is not known yet what these calls came to. Look each one up where it had its effect,
          then say it here.
        </p>
      )}
      {kind === 'unsettled' && (unsettled ?? 0) > 0 && (
        <p class="hint">
          These runs go on: a model may call again, with the same idempotency key. If it does not,
          look the call up, then say here what it came to.
        </p>
      )}
      {kind === 'found' && (
        <details class="unreached" open={list.value.rows.length === 0 && !list.value.isLoading}>
          <summary>{list.value.next === undefined ? 'Where it looked' : 'There are more'}</summary>
          {list.value.next !== undefined && (
            <button type="button" onClick={() => void inspector.loadMore()}>
              Look further
            </button>
          )}
          {unreached.map((sentence) => (
            <p key={sentence}>{sentence}</p>
          ))}
        </details>
      )}
      {inspector.chosen.value.size > 0 && <ResolveChosen inspector={inspector} />}
      <Observed inspector={inspector} />
    </section>
  );
}

const WITHIN: readonly (readonly [title: string, withinMs: number | undefined])[] = [
  ['any time', undefined],
  ['15 min', 900_000],
  ['1 h', 3_600_000],
  ['1 day', 86_400_000],
];

function SearchRuns(props: {
  readonly inspector: Inspector;
  readonly search: Search | undefined;
}): JSX.Element {
  const { inspector, search } = props;
  const [text, setText] = useState('');
  const [within, setWithin] = useState('');
  const withinMs = within === '' ? undefined : Number(within);
  useEffect(() => {
    if (search !== undefined) return;
    setText('');
    setWithin('');
  }, [search]);
  const leave = (): void => {
    setText('');
    setWithin('');
    if (search !== undefined) inspector.chooseList('open');
  };
  const onSubmit = (event: Event): void => {
    event.preventDefault();
    if (text.trim() === '' && withinMs === undefined) leave();
    else void inspector.search({ text: text.trim(), withinMs });
  };
  return (
    <form class="find" role="search" onSubmit={onSubmit}>
      <input
        type="text"
        id="search"
        value={text}
        placeholder="Search: key, digest, state, tool"
        aria-label="Search runs by key, digest, subject, state or tool"
        autocomplete="off"
        autocapitalize="none"
        spellcheck={false}
        onInput={({ currentTarget }) => setText(currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== 'Escape') return;
          event.stopPropagation();
          leave();
          event.currentTarget.blur();
        }}
      />
      <select
        aria-label="Moved within"
        value={within}
        onChange={({ currentTarget }) => setWithin(currentTarget.value)}
      >
        {WITHIN.map(([title, ms]) => (
          <option key={title} value={ms ?? ''}>
            {title}
          </option>
        ))}
      </select>
      <button type="submit">Find</button>
    </form>
  );
}

type Outcome = 'succeeded' | 'failed';

/** One note for several calls: an operator looked them all up in one place. */
function ResolveChosen({ inspector }: { readonly inspector: Inspector }): JSX.Element {
  const { chosen, session } = inspector;
  const noted = useRef<HTMLTextAreaElement>(null);
  const [note, setNote] = useState('');
  const [isNoteMissing, setNoteMissing] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [asked, setAsked] = useState<Outcome>();
  const calls = [...chosen.value.values()];
  const count = calls.length;
  const runs = new Set(calls.map((call) => runName(call.workflow, call))).size;
  const amounts = calls.flatMap(({ step }) => step.amount ?? []);
  const ask = (outcome: Outcome): void => {
    setNoteMissing(note.trim() === '');
    if (note.trim() === '') noted.current?.focus();
    else setAsked(outcome);
  };
  // The second tap of a double one is no answer: the button stands where the first one hit.
  const [isReady, setReady] = useState(false);
  useEffect(() => {
    setReady(false);
    if (asked === undefined) return;
    const timer = setTimeout(() => setReady(true), BEFORE_YES_MS);
    return () => clearTimeout(timer);
  }, [asked]);
  const resolve = async (outcome: Outcome): Promise<void> => {
    setBusy(true);
    if (await inspector.resolveChosen(outcome, note.trim())) setNote('');
    setBusy(false);
    setAsked(undefined);
  };
  return (
    <form
      class="several"
      aria-label="Resolve the chosen runs"
      onSubmit={(event) => event.preventDefault()}
    >
      <p>
        <span>
          <strong>
            {many(runs, 'run')}
            {count > runs && ` with ${many(count, 'call')}`} chosen
          </strong>
          {amounts.length > 0 && `: ${shownAmounts(amounts)}`}
        </span>
        <button
          type="button"
          class="icon-button"
          aria-label="Choose none"
          onClick={() => {
            chosen.value = new Map();
          }}
        >
          <Icon name="close" />
        </button>
      </p>
      {asked === undefined ? (
        <>
          <label class="field">
            Note for the trail of each, as {session.value?.actor ?? 'you'}
            <textarea
              ref={noted}
              rows={2}
              maxLength={2000}
              value={note}
              placeholder="Where you looked them up, and what you found"
              aria-invalid={isNoteMissing}
              onInput={({ currentTarget }) => setNote(currentTarget.value)}
            />
          </label>
          {isNoteMissing && note.trim() === '' && (
            <p class="warning" role="alert">
              Write first where you looked them up.
            </p>
          )}
          <div class="buttons">
            <button type="button" onClick={() => ask('succeeded')}>
              {count} succeeded …
            </button>
            <button type="button" onClick={() => ask('failed')}>
              {count} failed …
            </button>
          </div>
        </>
      ) : (
        <>
          <p class="warning" role="alert">
            {asked === 'failed'
              ? `Say that ${many(count, 'call')} failed? Models may call them again.`
              : `Say that ${many(count, 'call')} succeeded?`}{' '}
            It cannot be undone. Note: “{note.trim()}”
          </p>
          <div class="buttons">
            <button type="button" onClick={() => setAsked(undefined)}>
              Back
            </button>
            <button
              type="button"
              class="primary"
              disabled={isBusy || !isReady}
              onClick={() => void resolve(asked)}
            >
              Yes, {count} {asked}
            </button>
          </div>
        </>
      )}
    </form>
  );
}

const BEFORE_YES_MS = 700;
/** So many amounts have room. */
const MOST_AMOUNTS = 6;

function shownAmounts(amounts: readonly string[]): string {
  const more = amounts.length - MOST_AMOUNTS;
  const shown = amounts.slice(0, MOST_AMOUNTS).join(' · ');
  return more > 0 ? `${shown} and ${more} more` : shown;
}

interface RowsProps {
  readonly inspector: Inspector;
  readonly list: RunList;
  readonly trouble: string | undefined;
  readonly total: number | undefined;
}

function Rows({ inspector, list, trouble, total }: RowsProps): JSX.Element {
  const frame = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  const [active, setActive] = useState(0);
  const { rows, next, isLoading, kind, state } = list;
  const at = Math.min(active, Math.max(0, rows.length - 1));
  useEffect(() => {
    setActive(0);
    frame.current?.scrollTo({ top: 0 });
  }, [kind, state]);
  useLayoutEffect(() => {
    const { current } = frame;
    if (current === null) return;
    const observer = new ResizeObserver(() => setHeight(current.clientHeight));
    observer.observe(current);
    return () => observer.disconnect();
  }, []);
  const first = Math.max(0, Math.floor(top / ROW) - SPARE);
  const last = Math.min(rows.length, Math.ceil((top + height) / ROW) + SPARE);
  const isNearEnd = last >= rows.length - SPARE;
  useEffect(() => {
    if (isNearEnd && rows.length > 0) void inspector.loadMore();
  }, [inspector, isNearEnd, rows.length]);
  const canChoose = inspector.session.value?.can.write === true;
  const choose = (index: number): void => {
    const row = rows[index];
    if (row !== undefined) inspector.chooseRun(row.value.id, row.workflow);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      choose(at);
      return;
    }
    if (event.key === 'x' && canChoose) {
      const row = rows[at];
      if (row !== undefined) inspector.toggle(row);
      return;
    }
    const page = Math.max(1, Math.floor(height / ROW) - 1);
    const moves: Readonly<Record<string, number>> = {
      ArrowDown: at + 1,
      ArrowUp: at - 1,
      j: at + 1,
      k: at - 1,
      PageDown: at + page,
      PageUp: at - page,
      Home: 0,
      End: rows.length - 1,
    };
    const wanted = moves[event.key];
    if (wanted === undefined) return;
    event.preventDefault();
    const index = Math.max(0, Math.min(rows.length - 1, wanted));
    setActive(index);
    const { current } = frame;
    if (current === null) return;
    if (index * ROW < current.scrollTop) current.scrollTop = index * ROW;
    if ((index + 1) * ROW > current.scrollTop + height)
      current.scrollTop = (index + 1) * ROW - height;
  };
  const inSight = rows.slice(first, last);
  const loadedHeight = rows.length * ROW;
  const size = next === undefined ? rows.length : (total ?? -1);
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: it has a role either way.
    // biome-ignore lint/a11y/useAriaPropsSupportedByRole: both roles take a name.
    <div
      class="rows"
      ref={frame}
      tabIndex={0}
      // A list box has options; without any, it says why.
      role={rows.length > 0 ? 'listbox' : 'status'}
      aria-label={`${NAMES[kind]} runs`}
      aria-busy={isLoading}
      aria-activedescendant={rows.length > 0 ? `row-${at}` : undefined}
      onScroll={({ currentTarget }) => setTop(currentTarget.scrollTop)}
      onKeyDown={onKeyDown}
    >
      <div class="space" role="presentation" style={{ height: `${Math.max(loadedHeight, 1)}px` }}>
        {inSight.map((row, index) => (
          <Row
            key={runName(row.workflow, row.value)}
            inspector={inspector}
            row={row}
            index={first + index}
            size={size}
            isActive={first + index === at}
            canChoose={canChoose}
            onPick={() => {
              setActive(first + index);
              choose(first + index);
            }}
          />
        ))}
      </div>
      {rows.length === 0 && isLoading && <Skeleton />}
      {rows.length === 0 && !isLoading && (
        <p class={trouble === undefined ? 'empty' : 'empty bad'} role="presentation">
          {trouble ?? EMPTY[kind]}
        </p>
      )}
    </div>
  );
}

const NAMES: Readonly<Record<ListKind, string>> = {
  held: 'Held',
  unsettled: 'Unsettled',
  stuck: 'Stuck',
  open: 'Open',
  resolved: 'Resolved',
  found: 'Found',
};

const EMPTY: Readonly<Record<ListKind, string>> = {
  held: 'No run waits for a person.',
  unsettled: 'No call is unsettled.',
  stuck: 'No run is stuck.',
  open: 'No run is under way here.',
  resolved: 'No run was resolved since this server started, while the page was open.',
  found: 'No run was found.',
};

const LOST = 'There is no connection: whether runs are here is not known.';
const AWAY = 'The store cannot be asked now: whether runs are here is not known.';

/** Why the list may lack runs, or show what is over. */
function troubleOf({ reception, list, isAway }: Inspector): string | undefined {
  if (reception.value === 'lost') return LOST;
  return list.value.error?.message ?? (isAway.value ? AWAY : undefined);
}

function Skeleton(): JSX.Element {
  return (
    <div class="skeleton" role="presentation">
      {[0, 1, 2, 3, 4].map((row) => (
        <div class="ghost" key={row} />
      ))}
    </div>
  );
}

interface RowProps {
  readonly inspector: Inspector;
  readonly row: ListedRun;
  readonly index: number;
  readonly size: number;
  readonly isActive: boolean;
  readonly canChoose: boolean;
  readonly onPick: () => void;
}

function Row({ inspector, row, index, size, isActive, onPick, ...may }: RowProps): JSX.Element {
  const { value: run, at, workflow } = row;
  const passed = useComputed(() => Math.floor((inspector.tick.value - at) / 1000) * 1000).value;
  const isHere = workflow === inspector.workflow.value?.key;
  const isPicked = isHere && inspector.picked.value === run.id;
  const chosen = inspector.callsIn(row);
  const canChoose = may.canChoose && chosen.length > 0;
  const isChosen = chosen.some(([key]) => inspector.chosen.value.has(key));
  const { resolved } = run;
  const calls = callsOf(run, inspector.list.value.kind);
  const amounts = calls.flatMap((call) => call.amount ?? []);
  const amount = amounts.length > 0 ? shownAmounts(amounts) : resolved?.amount;
  const stuckAfterMs = inspector.counts.value?.stuckAfterMs ?? Number.POSITIVE_INFINITY;
  const unmoved = run.unmovedForMs === undefined ? undefined : run.unmovedForMs + passed;
  const tools = [...new Set([...calls, ...(run.step ? [run.step] : [])].map(({ tool }) => tool))];
  const who = run.key === undefined ? { first: run.digest, rest: '' } : keyInWords(run.key);
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: the listbox around it has the keys.
    <div
      class={['row', isActive && 'active', isPicked && 'picked', canChoose && 'choosable']
        .filter(Boolean)
        .join(' ')}
      id={`row-${index}`}
      role="option"
      // An option takes no focus of its own: the listbox names the active one.
      tabIndex={-1}
      aria-selected={isPicked}
      aria-checked={canChoose ? isChosen : undefined}
      aria-setsize={size}
      aria-posinset={index + 1}
      style={{ transform: `translateY(${index * ROW}px)` }}
      onClick={onPick}
    >
      {canChoose && (
        // biome-ignore lint/a11y/useKeyWithClickEvents: the listbox around it has the key x.
        // biome-ignore lint/a11y/noStaticElementInteractions: an option holds no other control.
        <span
          class={isChosen ? 'mark chosen' : 'mark'}
          title="Resolve it together with others (x)"
          onClick={(event) => {
            event.stopPropagation();
            inspector.toggle(row);
          }}
        >
          <Icon name="check" />
        </span>
      )}
      <span class="where" title={run.state}>
        {amount !== undefined && <strong>{amount}</strong>}
        {amount !== undefined && ' · '}
        {!isHere && `${nameOf(inspector, workflow)} · `}
        {resolved !== undefined
          ? `${resolved.outcome}: ${resolved.tool}`
          : isHere
            ? inspector.placeOf(run)
            : run.state}
      </span>
      <Status
        run={run}
        calls={calls}
        passed={passed}
        isStuck={unmoved !== undefined && unmoved >= stuckAfterMs}
      />
      <span class="who" title={[who.first, who.rest, run.key].filter(Boolean).join('\n')}>
        <span class="first">
          <span>{[...who.first].slice(0, -LAST).join('')}</span>
          <span>{[...who.first].slice(-LAST).join('')}</span>
        </span>
        {who.rest !== '' && <span class="rest">{who.rest}</span>}
      </span>
      <span class="when">
        {resolved !== undefined ? (
          <span title={resolved.note}>
            {resolved.actor ?? 'another process'}, {inWords(resolved.agoMs + passed)} ago
          </span>
        ) : tools.length > 0 ? (
          <span class="tool">{tools.join(', ')}</span>
        ) : unmoved === undefined ? (
          ''
        ) : (
          `${inWords(unmoved)} ago`
        )}
      </span>
    </div>
  );
}

function nameOf({ workflows }: Inspector, workflow: string): string {
  return workflows.value.find(({ key }) => key === workflow)?.id ?? workflow;
}

function Status(props: {
  readonly run: RunSummary;
  readonly calls: readonly StepNow[];
  readonly passed: number;
  readonly isStuck: boolean;
}): JSX.Element {
  const { run, calls, passed, isStuck } = props;
  const [oldest] = calls;
  if (run.fault !== undefined) return <Badge tone="bad">not understood</Badge>;
  if (oldest !== undefined && oldest.id !== run.step?.id)
    return <Badge tone="stuck">unsettled {inWords((oldest.sinceMs ?? 0) + passed)}</Badge>;
  if (run.status === 'held')
    return <Badge tone="held">held {inWords((run.heldForMs ?? 0) + passed)}</Badge>;
  if (run.status === 'running') return <Badge tone="running">running</Badge>;
  if (isStuck) return <Badge tone="stuck">stuck</Badge>;
  if (run.ended) return <Badge tone="ended">ended</Badge>;
  return (
    <Badge tone="idle">
      {counted(run.version)} {run.version === 1 ? 'move' : 'moves'}
    </Badge>
  );
}
