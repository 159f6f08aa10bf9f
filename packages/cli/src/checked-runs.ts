/**
 * How a gate would take the runs of a store, in words. Hides which of it fails the command, and how
 * a table of thousands of rows stays short.
 */
import type { CheckedRuns, ComparedTool, SomeRuns, UnreadableRuns } from 'mcp-interlock/runs';
import { lineOf } from './log.ts';

/**
 * What may fail the command. `unreadable`: runs that the gate cannot read. `closed`: runs that
 * cannot call a tool that they could call. `opened`: runs that can call a tool that they could not.
 * `budget`: limits that begin anew. `held`: held or running steps of a tool that is not bound.
 */
export const FAIL_ON = ['unreadable', 'closed', 'opened', 'budget', 'held'] as const;
export type FailOn = (typeof FAIL_ON)[number];

/** What breaks runs. A tool that opens is often what a deployment is for. */
export const BREAKS_RUNS: readonly FailOn[] = ['unreadable', 'closed', 'budget', 'held'];

/** What is so of the runs, of all that may fail the command. */
export function faultsOf({ unreadable, unbound, compared }: CheckedRuns): readonly FailOn[] {
  const { tools, limits } = compared;
  const isSo: Readonly<Record<FailOn, boolean>> = {
    unreadable: unreadable > 0,
    closed: tools.some(isClosed) || limits.some(({ change }) => change === 'closed'),
    opened: tools.some(({ opened }) => opened.runs > 0),
    budget: limits.some(({ change }) => change !== 'closed'),
    held: unbound.length > 0,
  };
  return FAIL_ON.filter((each) => isSo[each]);
}

/** No gate was asked about a tool that is new to it. */
function isClosed({ boundBy, closed }: ComparedTool): boolean {
  return boundBy === 'both' && closed.runs > 0;
}

/** So many rows of a table are printed. */
const MOST_ROWS = 20;

const REMEDIES: Readonly<Record<UnreadableRuns['kind'], string>> = {
  'unknown-state': 'Give the gate a "migrate" that takes them to another state.',
  'older-version': 'Give the gate a "migrate" that reads what the older version saved.',
  'newer-version': 'A newer deployment saved them: deploy that one, or a later one.',
  'older-package': 'End these runs, or let them end, before you deploy this version.',
  'newer-package': 'Deploy that version of mcp-interlock wherever the store is used.',
  'migrate-threw': 'Mend "migrate": it must give a state and a context for them.',
  'migrate-returned': 'Mend "migrate": it must give a state and a context for them.',
  malformed: 'Repair what the store has, or delete the run.',
};

/**
 * How a gate would take the runs of a store.
 *
 * @param isOldMissing whether the file of `--old` has no gate of that id
 */
export function runsInWords(
  id: string,
  checked: CheckedRuns | undefined,
  store: string,
  failOn: readonly FailOn[],
  isOldMissing: boolean,
): string {
  if (checked === undefined) return '';
  const { runs, states, faults, migrated, unbound, isCut } = checked;
  const severity = (kind: FailOn): string => (failOn.includes(kind) ? 'error' : 'note');
  const lines = [
    `${id}: ${many(runs, 'run')} in ${store}`,
    ...firstOf(states, (row) => [`  ${many(row.runs, 'run')} in ${quoted(row.state)}`]),
    ...firstOf(migrated, ({ from, version, to, runs }) => [
      `  "migrate" takes ${many(runs, 'run')} in ${quoted(from)}${ofVersion(version)} ` +
        `to ${quoted(to)}`,
    ]),
    ...firstOf(faults, ({ kind, state, version, reason, runs, run }) => [
      `  ${severity('unreadable')} ${kind}: ${many(runs, 'run')} in ${quoted(state)}${ofVersion(version)} cannot be ` +
        `read, such as ${run}`,
      `    ${reason}`,
      `    ${REMEDIES[kind]}`,
    ]),
    ...firstOf(unbound, ({ tool, held, running, run }) => {
      const steps = stepsInWords(held, running);
      return [
        `  ${severity('held')} tool-not-bound: ${steps} of ${quoted(tool)}, such as in ${run}`,
        '    Bind it until they are settled, or give `resolve()` the event.',
      ];
    }),
    ...(isOldMissing
      ? [`  --old has no gate ${quoted(id)}: what the store has noted counts.`]
      : []),
    ...comparedInWords(checked, severity),
    ...(isCut ? ['  More than 1,000 rows of a table were not kept.'] : []),
  ];
  return lines.map(lineOf).join('');
}

function firstOf<Row>(rows: readonly Row[], linesOf: (row: Row) => readonly string[]): string[] {
  const rest = rows.length - MOST_ROWS;
  const more = rest > 0 ? [`  … and ${rest} more like these: see --json`] : [];
  return [...rows.slice(0, MOST_ROWS).flatMap(linesOf), ...more];
}

export function many(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? '' : 's'}`;
}

function stepsInWords(held: number, running: number): string {
  const all = [held > 0 && many(held, 'held step'), running > 0 && many(running, 'running step')];
  return all.filter(Boolean).join(' and ');
}

function quoted(name: string): string {
  return JSON.stringify(name);
}

function ofVersion(version: number): string {
  return version === 0 ? '' : ` of version ${version}`;
}

/** What a deployment changes for the runs. */
function comparedInWords(
  { runs, compared }: CheckedRuns,
  severity: (kind: FailOn) => string,
): readonly string[] {
  const { with: other, noted, tools, limits, unread } = compared;
  if (runs === 0) return [];
  if (other === 'none')
    return ['  Not compared: the store has noted no gate of these runs. Give --old FILE.'];
  if (other === 'unmade')
    return [
      '  Not compared: no gate can be made of what the store has noted of a statechart, or of a ' +
        'very large gate. Give --old FILE.',
    ];
  const [newest] = noted;
  if (other === 'noted' && newest?.isSame) return ['  The gate that serves them says the same.'];
  const gate =
    other === 'given' ? 'the gate of --old' : `the gate noted at ${timeOf(newest?.last ?? 0)}`;
  const isSame = tools.length + limits.length === 0;
  return [
    `  compared with ${gate}${isSame ? ': nothing changes for them' : ''}`,
    ...firstOf(tools, (row) => toolInWords(row, runs - unread, severity)),
    ...firstOf(limits, ({ tool, limit, change, runs: some }) => {
      const kind = change === 'closed' ? 'closed' : 'budget';
      const what = kind === 'closed' ? 'the limit of' : 'a new budget for';
      return [
        `  ${severity(kind)} ${kind}: ${what} ${quoted(tool)} in ${someInWords(some)}`,
        `    ${limit} ${CHANGES[change]}`,
      ];
    }),
    ...(unread > 0 ? [`  ${many(unread, 'run')} cannot be read by that gate alone.`] : []),
  ];
}

const CHANGES = {
  anew: 'The new gate counts less of the calls before: the budget begins anew.',
  gone: 'The new gate has no such limit.',
  moved: 'The calls go to the record of another old name: a roll-back does not find them.',
  closed: 'It cannot count calls before it, and refuses each call until they are too old.',
};

function toolInWords(
  row: ComparedTool,
  runs: number,
  severity: (kind: FailOn) => string,
): readonly string[] {
  const { tool, now, boundBy, before, after, closed, opened, perhaps } = row;
  const name = quoted(now ?? tool) + (now === undefined ? '' : `, which was ${quoted(tool)}`);
  if (boundBy === 'after') return [`  new: ${after} of ${many(runs, 'run')} can call ${name}`];
  const counts = `    ${many(before, 'run')} could before, ${after} can after.`;
  const freed = boundBy === 'before' ? ' No rule is about it any more.' : '';
  return [
    ...(closed.runs > 0
      ? [`  ${severity('closed')} closed: ${name}, no longer in ${someInWords(closed)}`, counts]
      : []),
    ...(opened.runs > 0
      ? [`  ${severity('opened')} opened: ${name}, now in ${someInWords(opened)}`, counts + freed]
      : []),
    ...(freed !== '' && opened.runs === 0
      ? [`  no rule: ${name} can be called in each run, as before`]
      : []),
    ...(perhaps ? [`  perhaps: ${name}, by functions that differ: ${perhaps.join(', ')}`] : []),
  ];
}

function someInWords({ runs, such }: SomeRuns): string {
  return `${many(runs, 'run')}, such as ${such.join(', ')}`;
}

function timeOf(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 16)}Z`;
}
