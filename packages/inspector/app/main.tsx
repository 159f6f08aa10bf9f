/** The page: its header, and the three parts that stand beside each other where there is room. */
import { signal } from '@preact/signals';
import { type JSX, render } from 'preact';
import { useEffect } from 'preact/hooks';
import { Diagram } from './diagram.tsx';
import { Inspector } from './inspector.ts';
import { areKeysOn, Keys } from './keys.tsx';
import { Icon, type IconName } from './parts.tsx';
import { Run } from './run.tsx';
import { Runs } from './runs.tsx';
import type { Reception } from './server.ts';
import { StopCalls, Stops } from './stops.tsx';
import { WhatIfPanel } from './what-if.tsx';
import { inWords } from './words.ts';

/** Which part is shown where there is room for one only. */
const view = signal<'runs' | 'diagram' | 'panel'>('runs');

function Page({ inspector }: { readonly inspector: Inspector }): JSX.Element {
  const { refusal, workflow, session, picked, panel } = inspector;
  const run = picked.value;
  useEffect(() => {
    if (run !== undefined) view.value = 'panel';
  }, [run]);
  const held = inspector.workflows.value.reduce((all, each) => all + (each.counts?.held ?? 0), 0);
  useEffect(() => {
    document.title = held > 0 ? `(${held} held) Interlock inspector` : 'Interlock inspector';
  }, [held]);
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent): void => onPageKey(event, inspector);
    addEventListener('keydown', onKeyDown);
    return () => removeEventListener('keydown', onKeyDown);
  }, [inspector]);
  return (
    <>
      <button type="button" class="skip" onClick={skip}>
        Skip to the run
      </button>
      <Header inspector={inspector} />
      {session.value?.development === true && (
        <p class="banner">
          <Icon name="warning" /> No <code>authorize</code> is set: everybody on this machine may
          look and write.
        </p>
      )}
      <Notice inspector={inspector} />
      {workflow.value === undefined ? (
        <main key="closed" class="closed" aria-busy={refusal.value === undefined}>
          <h1>{refusal.value === undefined ? 'Loading …' : 'Nothing to show'}</h1>
          <p>{refusal.value}</p>
        </main>
      ) : (
        // Only now, since the tabs above may take several lines, and would push it down.
        <main key="parts" class="parts" data-view={view.value}>
          <nav class="views" aria-label="Parts of the page">
            {VIEWS.map(({ title, shown, inside }) => (
              <button
                type="button"
                key={title}
                aria-pressed={view.value === shown && (inside ?? panel.value) === panel.value}
                onClick={() => {
                  view.value = shown;
                  if (inside !== undefined) panel.value = inside;
                }}
              >
                {title}
              </button>
            ))}
          </nav>
          <h1 class="hidden-text">{workflow.value.id}</h1>
          <Runs inspector={inspector} />
          <section class="chart" aria-label="Diagram">
            <Picture inspector={inspector} />
          </section>
          <Panel inspector={inspector} />
        </main>
      )}
      <Stops inspector={inspector} />
    </>
  );
}

const VIEWS = [
  { title: 'Runs', shown: 'runs', inside: undefined },
  { title: 'Diagram', shown: 'diagram', inside: undefined },
  { title: 'Run', shown: 'panel', inside: 'run' },
  { title: 'What if', shown: 'panel', inside: 'what-if' },
] as const;

/** `/` searches, `j` and `k` go through the list, Esc leaves a run. Enter is the list's own. */
function onPageKey(event: KeyboardEvent, inspector: Inspector): void {
  const { key, target, defaultPrevented } = event;
  if (defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  const isTyping = target instanceof Element && target.closest('input, select, textarea, dialog');
  if (isTyping || (!areKeysOn.value && key !== 'Escape')) return;
  const rows = document.querySelector<HTMLElement>('.rows');
  if (key === '/') {
    event.preventDefault();
    view.value = 'runs';
    document.getElementById('search')?.focus();
  } else if (key === 'Escape' && inspector.picked.value !== undefined) {
    inspector.chooseRun(undefined);
    view.value = 'runs';
    rows?.focus();
  } else if ((key === 'j' || key === 'k') && rows !== null && target !== rows) {
    view.value = 'runs';
    rows.focus();
    rows.dispatchEvent(new KeyboardEvent('keydown', { key, cancelable: true }));
  }
}

function skip(): void {
  view.value = 'panel';
  document.getElementById('panel')?.focus();
}

/** The width of a tab in px, at most. */
const MOST_TAB = 240;

/** What is wrong with a workflow: a tab has no room for words. */
function Sign({ icon, says }: { readonly icon: IconName; readonly says: string }): JSX.Element {
  return (
    <span class="badge bad" title={says}>
      <Icon name={icon} />
      <span class="hidden-text">{says}</span>
    </span>
  );
}

function Header({ inspector }: { readonly inspector: Inspector }): JSX.Element {
  const { workflows, workflow } = inspector;
  return (
    <header class="bar">
      <p class="brand">
        <svg width="22" height="22" viewBox="0 0 22 22" aria-hidden="true">
          <path class="ring" d="M8.5 5.500a5.5 5.5 0 1 0 0 11a5.5 5.5 0 0 0 5.5 -5.5" />
          <path class="ring second" d="M13.5 16.500a5.5 5.5 0 1 0 0 -11a5.5 5.5 0 0 0 -5.5 5.5" />
        </svg>
        Interlock
      </p>
      <nav
        class="workflows"
        aria-label="Workflows"
        style={{ maxWidth: `${workflows.value.length * MOST_TAB}px` }}
      >
        {workflows.value.map(({ key, id, counts, store, stopped = [] }) => (
          <button
            type="button"
            key={key}
            aria-current={workflow.value?.key === key ? 'page' : undefined}
            title={id}
            onClick={() => inspector.chooseWorkflow(key)}
          >
            <span>{id}</span>
            {(counts?.held ?? 0) > 0 && (
              <span class="badge held" title="Held runs">
                {counts?.held}
                <span class="hidden-text"> held</span>
              </span>
            )}
            {(counts?.unsettled ?? 0) > 0 && (
              <span class="badge stuck" title="Runs with unsettled calls">
                {counts?.unsettled}
                <span class="hidden-text"> unsettled</span>
              </span>
            )}
            {(counts?.unreadable ?? 0) > 0 && (
              <Sign icon="hidden" says={`${counts?.unreadable} unreadable`} />
            )}
            {stopped.length > 0 && <Sign icon="stop" says="stopped" />}
            {store === 'unavailable' && <Sign icon="warning" says="store is away" />}
          </button>
        ))}
      </nav>
      <StopCalls inspector={inspector} />
      <Connection inspector={inspector} />
      <Keys />
      <ThemeSwitch />
    </header>
  );
}

const RECEPTIONS: Readonly<Record<Reception, readonly [string, string]>> = {
  connecting: ['connecting', 'Connecting'],
  live: ['live', 'Live'],
  lost: ['lost', 'Reconnecting'],
  refused: ['refused', 'Not allowed'],
};

const AWAY = ['lost', 'Store is away'] as const;

function Connection({ inspector }: { readonly inspector: Inspector }): JSX.Element {
  const { delayMs, reception, isAway } = inspector;
  const isLive = reception.value === 'live' && !isAway.value;
  // A green lamp beside what could not be asked would vouch for it.
  const [kind, says] =
    reception.value === 'live' && isAway.value ? AWAY : RECEPTIONS[reception.value];
  const title =
    isLive && delayMs.value > 0
      ? `What other processes do is seen within ${inWords(Math.max(1000, delayMs.value))}`
      : says;
  return (
    <p class={`connection ${kind}`} role="status" title={title}>
      <span class="lamp" aria-hidden="true" />
      <span>{says}</span>
    </p>
  );
}

type Theme = 'auto' | 'light' | 'dark';

const isDark = matchMedia('(prefers-color-scheme: dark)').matches;
/** The first press changes what is seen. */
const NEXT: Readonly<Record<Theme, Theme>> = isDark
  ? { auto: 'light', light: 'dark', dark: 'auto' }
  : { auto: 'dark', dark: 'light', light: 'auto' };
const THEMES: Readonly<Record<Theme, readonly [IconName, string]>> = {
  auto: ['auto', 'Colours as the system has them'],
  light: ['sun', 'Light colours'],
  dark: ['moon', 'Dark colours'],
};

function isTheme(text: string | null): text is Theme {
  return text !== null && Object.hasOwn(NEXT, text);
}

const kept = localStorage.getItem('interlock-theme');
const theme = signal<Theme>(isTheme(kept) ? kept : 'auto');
theme.subscribe((chosen) => {
  document.documentElement.dataset.theme = chosen;
  localStorage.setItem('interlock-theme', chosen);
});

function ThemeSwitch(): JSX.Element {
  const [icon, says] = THEMES[theme.value];
  return (
    <button
      type="button"
      class="icon-button theme"
      aria-label={`${says}. Change`}
      title={says}
      onClick={() => {
        theme.value = NEXT[theme.value];
      }}
    >
      <Icon name={icon} />
    </button>
  );
}

const NOTICE_MS = 12_000;

function Notice({ inspector }: { readonly inspector: Inspector }): JSX.Element {
  const { notice } = inspector;
  const news = notice.value;
  useEffect(() => {
    if (news?.kind !== 'done') return;
    const timer = setTimeout(() => {
      notice.value = undefined;
    }, NOTICE_MS);
    return () => clearTimeout(timer);
  }, [news, notice]);
  return (
    <div class="notices" role="status" aria-live="polite">
      {news !== undefined && (
        <p class={`notice ${news.kind}`}>
          <Icon name={news.kind === 'done' ? 'check' : 'warning'} />
          <span>{news.text}</span>
          <button
            type="button"
            class="icon-button"
            aria-label="Dismiss"
            onClick={() => {
              notice.value = undefined;
            }}
          >
            <Icon name="close" />
          </button>
        </p>
      )}
    </div>
  );
}

function Picture({ inspector }: { readonly inspector: Inspector }): JSX.Element | null {
  const { workflow, run, walk, panel, list, counts } = inspector;
  if (workflow.value === undefined) return null;
  const isWalking = panel.value === 'what-if';
  const steps = walk.steps.value;
  const standing = isWalking ? steps.at(-1)?.reached : run.value?.value;
  const walked = steps
    .map(({ reached }, index) => ({ from: steps[index - 1]?.reached, to: reached }))
    .filter(({ from }) => from !== undefined)
    .map(({ from, to }, seq) => ({
      seq,
      version: 0,
      attempt: 1,
      at: 0,
      from: from?.state ?? '',
      to: to.state,
      fromActive: from?.active ?? [],
      toActive: to.active,
      event: to.event ?? null,
      says: '',
    }))
    .reverse();
  return (
    <Diagram
      graph={workflow.value.graph}
      counts={counts.value?.states ?? []}
      standing={standing}
      trail={isWalking ? walked : inspector.trail().entries}
      chosen={list.value.state}
      onTake={isWalking ? (line) => void walk.take(line) : undefined}
      onChoose={(state) => {
        inspector.chooseList('open', list.value.state === state ? undefined : state);
        view.value = 'runs';
      }}
    />
  );
}

function Panel({ inspector }: { readonly inspector: Inspector }): JSX.Element {
  const { panel } = inspector;
  const choose = (name: 'run' | 'what-if'): void => {
    panel.value = name;
  };
  return (
    <section class="panel" id="panel" aria-label="Run" tabIndex={-1}>
      <div class="tabs" role="group" aria-label="What the panel shows">
        <button type="button" aria-pressed={panel.value === 'run'} onClick={() => choose('run')}>
          Run
        </button>
        <button
          type="button"
          aria-pressed={panel.value === 'what-if'}
          onClick={() => choose('what-if')}
        >
          What if
        </button>
      </div>
      <div class="content">
        {panel.value === 'run' ? (
          <Run inspector={inspector} />
        ) : (
          <WhatIfPanel inspector={inspector} />
        )}
      </div>
    </section>
  );
}

const root = document.createElement('div');
root.id = 'page';
document.body.append(root);
const inspector = new Inspector();
render(<Page inspector={inspector} />, root);
void inspector.start();
