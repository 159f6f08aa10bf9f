/** The list of runs: those that wait for a person first. Only the rows in sight are there. */
import { useComputed } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { RunSummary } from '../src/api.ts';
import type { Inspector, ListKind, RunList, Seen } from './inspector.ts';
import { Observed } from './observed.tsx';
import { Badge, Icon } from './parts.tsx';
import { counted, countedShort, inWords, keyInWords } from './words.ts';

const ROW = 58;
/** Long names often differ in their ends alone, so as many characters are never cut off. */
const LAST = 8;
/** How many rows are there beyond each end of what is in sight. */
const SPARE = 6;

export function Runs({ inspector }: { readonly inspector: Inspector }): JSX.Element {
  const { list, counts, workflow } = inspector;
  const { kind, state } = list.value;
  const { held = 0, stuck = 0, runs = 0, stuckAfterMs } = counts.value ?? {};
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
    ['open', 'All', runs, 'All runs that have not ended, the longest unmoved first'],
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
            <span class="number">{counts.value === undefined ? '–' : countedShort(count)}</span>
          </button>
        ))}
      </div>
      <div class="filter">
        {state === undefined ? (
          <FindRun inspector={inspector} />
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
      {workflow.value?.store === 'no-index' ? (
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
      <Observed inspector={inspector} />
    </section>
  );
}

function FindRun({ inspector }: { readonly inspector: Inspector }): JSX.Element {
  const [key, setKey] = useState('');
  const onSubmit = (event: Event): void => {
    event.preventDefault();
    if (key.trim() === '') return;
    void inspector.find(key.trim());
    setKey('');
  };
  return (
    <form class="find" onSubmit={onSubmit}>
      <input
        type="text"
        value={key}
        placeholder="Find a run by its key or digest"
        aria-label="The key or digest of a run"
        autocomplete="off"
        spellcheck={false}
        onInput={({ currentTarget }) => setKey(currentTarget.value)}
      />
      <button type="submit">Find</button>
    </form>
  );
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
    const page = Math.max(1, Math.floor(height / ROW) - 1);
    const moves: Readonly<Record<string, number>> = {
      ArrowDown: at + 1,
      ArrowUp: at - 1,
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
          {EMPTY[kind]}
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

const NAMES: Readonly<Record<ListKind, string>> = { held: 'Held', stuck: 'Stuck', open: 'All' };

const EMPTY: Readonly<Record<ListKind, string>> = {
  held: 'No run waits for a person.',
  stuck: 'No run is stuck.',
  open: 'No run is under way here.',
};

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
  readonly onPick: () => void;
}

function Row({ inspector, row, index, size, isActive, onPick }: RowProps): JSX.Element {
  const { value: run, at } = row;
  const passed = useComputed(() => Math.floor((inspector.tick.value - at) / 1000) * 1000).value;
  const isPicked = inspector.picked.value === run.id;
  const stuckAfterMs = inspector.counts.value?.stuckAfterMs ?? Number.POSITIVE_INFINITY;
  const unmoved = run.unmovedForMs === undefined ? undefined : run.unmovedForMs + passed;
  const who = run.key === undefined ? { first: run.digest, rest: '' } : keyInWords(run.key);
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: the listbox around it has the keys.
    <div
      class={['row', isActive && 'active', isPicked && 'picked'].filter(Boolean).join(' ')}
      id={`row-${index}`}
      role="option"
      // An option takes no focus of its own: the listbox names the active one.
      tabIndex={-1}
      aria-selected={isPicked}
      aria-setsize={size}
      aria-posinset={index + 1}
      style={{ transform: `translateY(${index * ROW}px)` }}
      onClick={onPick}
    >
      <span class="where" title={run.state}>
        {inspector.placeOf(run)}
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
        {run.step !== undefined ? (
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
