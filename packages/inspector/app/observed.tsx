/**
 * What a gate that only observes would have refused. Hides how little of it is shown at first: the
 * share, until a person wants to know more.
 */
import type { JSX } from 'preact';
import type { ObservedHour, ObservedRule, ObservedRuns } from '../src/api.ts';
import type { Inspector } from './inspector.ts';
import { Icon, Time } from './parts.tsx';
import { atTime, counted, many, shareInWords } from './words.ts';

const HOUR_MS = 3_600_000;
const HOURS = 24;
const BAR = 10;
const HIGHEST = 32;

/** Nothing where the page's process has observed no run. */
export function Observed({ inspector }: { readonly inspector: Inspector }): JSX.Element | null {
  const { workflow, workflows } = inspector;
  const observed = workflows.value.find(({ key }) => key === workflow.value?.key)?.observed;
  if (observed === undefined) return null;
  const { runs, refused, calls, unjudged, since, rules, hours } = observed;
  return (
    <details class="observed">
      <summary>
        <Icon name="eye" />
        <span>
          It would refuse <strong>{shareInWords(refused, runs)}</strong> of runs
        </span>
      </summary>
      <p>
        {counted(refused)} of {many(runs, 'run')} and {many(calls, 'call')} that this process has
        observed since <Time at={since} now={Date.now()} />.
        {unjudged > 0 && ` Not judged: ${many(unjudged, 'call')}.`}
      </p>
      <Hours hours={hours} />
      {rules.length > 0 && (
        <ol class="rules" aria-label="What would be refused">
          {rules.map((rule) => (
            <Rule key={`${rule.tool} ${rule.reason}`} rule={rule} of={runs} inspector={inspector} />
          ))}
        </ol>
      )}
    </details>
  );
}

interface RuleProps {
  readonly rule: ObservedRule;
  readonly of: ObservedRuns['runs'];
  readonly inspector: Inspector;
}

function Rule({ rule, of, inspector }: RuleProps): JSX.Element {
  const { tool, reason, runs, calls, at, state, says, digest } = rule;
  return (
    <li>
      <p>
        <strong>{tool}</strong> ({reason}): first in {many(runs, 'run')}, {shareInWords(runs, of)};{' '}
        {many(calls, 'call')}
      </p>
      {says.length > 0 && <p class="says">{says.join('; ')}</p>}
      <p class="last">
        Last {atTime(at, Date.now())} in <code>{state}</code>{' '}
        <button type="button" onClick={() => void inspector.find(digest)}>
          Look at its run
        </button>
      </p>
    </li>
  );
}

/** The share of runs that would be refused, by the hour in which each began. */
function Hours({ hours }: { readonly hours: readonly ObservedHour[] }): JSX.Element | null {
  const newest = hours.at(-1)?.from;
  if (newest === undefined || hours.length < 2) return null;
  const bars = hours.filter(({ from }) => newest - from < HOURS * HOUR_MS);
  const most = Math.max(...bars.map(({ runs }) => runs), 1);
  const heightOf = (count: number): number =>
    count === 0 ? 0 : Math.max(1, (HIGHEST * count) / most);
  return (
    <svg
      class="hours"
      viewBox={`0 0 ${HOURS * BAR} ${HIGHEST}`}
      role="img"
      aria-label={`By the hour: ${bars.map((each) => hourInWords(each)).join(', ')}`}
    >
      {bars.map((each) => {
        const { from, runs, refused } = each;
        const x = (HOURS - 1 - (newest - from) / HOUR_MS) * BAR;
        const [all, bad] = [heightOf(runs), heightOf(Math.min(refused, runs))];
        return (
          <g key={from}>
            <title>{hourInWords(each)}</title>
            <rect class="all" x={x} y={HIGHEST - all} width={BAR - 2} height={all} />
            <rect class="bad" x={x} y={HIGHEST - bad} width={BAR - 2} height={bad} />
          </g>
        );
      })}
    </svg>
  );
}

function hourInWords({ from, runs, refused }: ObservedHour): string {
  return `from ${atTime(from, Date.now())} on ${counted(refused)} of ${counted(runs)}`;
}
