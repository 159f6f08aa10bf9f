/** Small things that several parts of the page are made of. */
import type { ComponentChildren, JSX } from 'preact';
import type { Json } from '../src/api.ts';
import { atTime, wholeDate } from './words.ts';

const ICONS = {
  plus: 'M8 3v10M3 8h10',
  minus: 'M3 8h10',
  fit: 'M2.5 6V2.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10',
  close: 'M4 4l8 8M12 4l-8 8',
  check: 'M3 8.5l3.5 3.5L13 5',
  cross: 'M4.5 4.5l7 7M11.5 4.5l-7 7',
  warning: 'M8 2.5l6 10.5H2zM8 6.5v3.2M8 11.6v.1',
  clock: 'M8 2a6 6 0 1 0 .01 0M8 5v3.2l2.2 1.4',
  event: 'M8 2.5L13.5 8L8 13.5L2.5 8z',
  eye:
    'M1.5 8s2.4-4.2 6.5-4.2S14.5 8 14.5 8s-2.4 4.2-6.5 4.2S1.5 8 1.5 8z' +
    'M8 6.2a1.8 1.8 0 1 0 .01 0',
  hidden:
    'M2.5 2.5l11 11M4 5.2C2.4 6.4 1.5 8 1.5 8s2.4 4.2 6.5 4.200c1.2 0 2.2-.3 3.1-.8' +
    'M7 3.900c.3 0 .7-.1 1-.1 4.1 0 6.5 4.2 6.5 4.200s-.6 1-1.7 2.1',
  sun:
    'M8 5.200a2.8 2.8 0 1 0 .01 0M8 1v1.600M8 13.400V15M1 8h1.600M13.4 8H15M3 3l1.2 1.200' +
    'M11.8 11.800L13 13M13 3l-1.2 1.200M4.2 11.800L3 13',
  moon: 'M13.2 9.600A5.6 5.6 0 0 1 6.4 2.800a5.6 5.6 0 1 0 6.8 6.800z',
  auto: 'M8 2a6 6 0 1 0 .01 0M8 2v12',
  stop: 'M5.400 2h5.200L14 5.400v5.200L10.600 14H5.400L2 10.600V5.400zM5.500 8h5',
  copy: 'M5.5 5.500V2.500h8v8h-3M2.5 5.500h8v8h-8z',
  back: 'M6.5 3.500L2.5 7.500l4 4M2.5 7.500h7a4 4 0 0 1 4 4v1',
} as const;

export type IconName = keyof typeof ICONS;

export function Icon({ name }: { readonly name: IconName }): JSX.Element {
  return (
    <svg class="icon" width="16" height="16" viewBox="0 0 16 16" aria-hidden="true">
      <path d={ICONS[name]} />
    </svg>
  );
}

export type Tone = 'held' | 'stuck' | 'running' | 'ended' | 'idle' | 'good' | 'bad';

export function Badge(props: {
  readonly tone: Tone;
  readonly children: ComponentChildren;
}): JSX.Element {
  return <span class={`badge ${props.tone}`}>{props.children}</span>;
}

/** When something happened: in short, and whole in the tooltip. */
export function Time({ at, now }: { readonly at: number; readonly now: number }): JSX.Element {
  return (
    <time dateTime={new Date(at).toISOString()} title={wholeDate(at)}>
      {atTime(at, now)}
    </time>
  );
}

/**
 * The section with a run's shared data, as JSON with its kinds of values distinguished. Nothing
 * where the app shares none.
 */
export function SharedData({ data }: { readonly data: Json | undefined }): JSX.Element | null {
  if (data === undefined) return null;
  const text = JSON.stringify(data, null, 2);
  const parts = text.split(/("(?:[^"\\]|\\.)*"(?:\s*:)?|\b(?:true|false|null)\b|-?\d[\d.eE+-]*)/);
  return (
    <section aria-label="Shared data">
      <h3>Shared data</h3>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: who scrolls by keys must get here. */}
      <pre class="json" role="region" aria-label="Shared data" tabIndex={0}>
        {parts.map((part, index) => {
          const kind = index % 2 === 0 ? undefined : kindOf(part);
          return kind === undefined ? (
            part
          ) : (
            <span class={kind} key={index}>
              {part}
            </span>
          );
        })}
      </pre>
    </section>
  );
}

function kindOf(part: string): string {
  if (part.endsWith(':')) return 'key';
  if (part.startsWith('"')) return 'text';
  return /^[tfn]/.test(part) ? 'word' : 'number';
}
