/** The list of runs: those that wait for a person first. Only the rows in sight are there. */
import { useComputed } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { RunSummary } from '../src/api.ts';
import type { Inspector, ListKind, RunList, Search, Seen } from './inspector.ts';
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
  const { held = 0, stuck = 0, runs = 0, stuckAfterMs } = counts.value ?? {};
  const key = workflow.value?.key;
  const { resolved = 0 } = inspector.workflows.value.find((each) => each.key === key) ?? {};
  const isLost = inspector.hearing.value === 'lost';
  const kinds: readonly (readonly [ListKind, string, number, string])[] = [
    [
      'held',
      'Held',
      held,
      'A step ended with an unknown outcome: a person must say what it came to',
    ],
    [
      'stuck',
      'Stuck',
      stuck,
      stuckAfterMs === undefined ? 'Not moved for long' : `Not moved for ${inWords(stuckAfterMs)}`,
    ],
    ['open', 'Open', runs, 'All runs that have not ended, the longest unmoved first'],
    ['resolved', 'Resolved', resolved, 'What a person said of held steps, the newest first'],
  ];
  return (
    <section class="runs" aria-label="Runs">
      <div class="kinds" role="group" aria-label="Which runs">
        {kinds.map(([name, title, count, says]) => (
          <button
            type="button"
            key={name}
            class={`${name} ${count > 0 ? 'some' : ''}`}
            aria-pressed={kind === name}
            title={says}
            onClick={() => inspector.chooseList(name)}
          >
            {title}
            <span class="number">
              {counts.value === undefined || isLost ? '–' : countedShort(count)}
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
          total={kind === 'open' && state === undefined ? runs : undefined}
        />
      )}
      {kind === 'held' && held > 0 && (
        <p class="hint">
          No one can tell yet what these calls came to. Look each one up where it had its effect,
          then say it here.
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

/** One note for several held runs: an operator looked them all up in one place. */
function ResolveChosen({ inspector }: { readonly inspector: Inspector }): JSX.Element {
  const { chosen, session } = inspector;
  const noted = useRef<HTMLTextAreaElement>(null);
  const [note, setNote] = useState('');
  const [isNoteMissing, setNoteMissing] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [asked, setAsked] = useState<Outcome>();
  const steps = [...chosen.value.values()];
  const count = steps.length;
  const amounts = steps.flatMap(({ amount }) => amount ?? []);
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
          <strong>{many(count, 'run')} chosen</strong>
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
  readonly total: number | undefined;
}

function Rows({ inspector, list, total }: RowsProps): JSX.Element {
  const frame = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  const [active, setActive] = useState(0);
  const { rows, next, isLoading, error, kind, state } = list;
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
    if (row !== undefined) inspector.chooseRun(row.value.id);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      choose(at);
      return;
    }
    if (event.key === 'x' && canChoose) {
      const row = rows[at];
      if (row !== undefined) inspector.toggle(row.value);
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
    <div
      class="rows"
      ref={frame}
      tabIndex={0}
      role="listbox"
      aria-label={`${NAMES[kind]} runs`}
      aria-busy={isLoading}
      aria-activedescendant={rows.length > 0 ? `row-${at}` : undefined}
      onScroll={({ currentTarget }) => setTop(currentTarget.scrollTop)}
      onKeyDown={onKeyDown}
    >
      <div class="space" role="presentation" style={{ height: `${Math.max(loadedHeight, 1)}px` }}>
        {inSight.map((row, index) => (
          <Row
            key={row.value.id}
            inspector={inspector}
            row={row}
            index={first + index}
            size={size}
            isActive={first + index === at}
            canChoose={canChoose && row.value.status === 'held'}
            onPick={() => {
              setActive(first + index);
              choose(first + index);
            }}
          />
        ))}
      </div>
      {rows.length === 0 && isLoading && <Skeleton />}
      {rows.length === 0 && !isLoading && error === undefined && (
        <p class="empty" role="presentation">
          {inspector.hearing.value === 'lost' ? LOST : EMPTY[kind]}
        </p>
      )}
      {error !== undefined && (
        <p class="empty bad" role="presentation">
          {error}
        </p>
      )}
    </div>
  );
}

const NAMES: Readonly<Record<ListKind, string>> = {
  held: 'Held',
  stuck: 'Stuck',
  open: 'Open',
  resolved: 'Resolved',
  found: 'Found',
};

const EMPTY: Readonly<Record<ListKind, string>> = {
  held: 'No run waits for a person.',
  stuck: 'No run is stuck.',
  open: 'No run is under way here.',
  resolved: 'No run was resolved since this server started, while the page was open.',
  found: 'No run was found.',
};

const LOST = 'There is no connection: whether runs are here is not known.';

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
  readonly row: Seen<RunSummary>;
  readonly index: number;
  readonly size: number;
  readonly isActive: boolean;
  readonly canChoose: boolean;
  readonly onPick: () => void;
}

function Row({ inspector, row, index, size, isActive, canChoose, onPick }: RowProps): JSX.Element {
  const { value: run, at } = row;
  const passed = useComputed(() => Math.floor((inspector.tick.value - at) / 1000) * 1000).value;
  const isPicked = inspector.picked.value === run.id;
  const isChosen = inspector.chosen.value.has(run.id);
  const { resolved } = run;
  const amount = run.status === 'held' ? run.step?.amount : resolved?.amount;
  const stuckAfterMs = inspector.counts.value?.stuckAfterMs ?? Number.POSITIVE_INFINITY;
  const unmoved = run.unmovedForMs === undefined ? undefined : run.unmovedForMs + passed;
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
            inspector.toggle(run);
          }}
        >
          <Icon name="check" />
        </span>
      )}
      <span class="where" title={run.state}>
        {amount !== undefined && <strong>{amount}</strong>}
        {amount !== undefined && ' · '}
        {resolved === undefined ? inspector.placeOf(run) : `${resolved.outcome}: ${resolved.tool}`}
      </span>
      <Status
        run={run}
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
        ) : run.step !== undefined ? (
          <span class="tool">{run.step.tool}</span>
        ) : unmoved === undefined ? (
          ''
        ) : (
          `${inWords(unmoved)} ago`
        )}
      </span>
    </div>
  );
}

function Status(props: {
  readonly run: RunSummary;
  readonly passed: number;
  readonly isStuck: boolean;
}): JSX.Element {
  const { run, passed, isStuck } = props;
  if (run.fault !== undefined) return <Badge tone="bad">not understood</Badge>;
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
