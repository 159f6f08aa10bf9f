/**
 * A search over the runs of a workflow. Hides what each run is found by, and how far the search
 * goes. It reads a bounded number of runs, and says what it did not reach.
 */
import { type Runs, type RunView, type RunViews, runDigest } from 'mcp-interlock';
import { workflowGraph } from 'mcp-interlock/check';
import type { Abilities, SearchPage, SearchRequest } from './api.ts';

/** What is looked for. */
export interface SearchedQuery {
  readonly text?: SearchRequest['text'] | undefined;
  readonly withinMs?: number | undefined;
  readonly after?: string | undefined;
}

interface Searched extends Pick<SearchPage, 'looked' | 'unreached'> {
  readonly views: readonly RunView[];
  /** Where the next search goes on. */
  readonly next?: string;
}

/** So many runs are looked at, and so many found, by one search. */
const MOST_LOOKED_AT = 2_000;
const MOST_FOUND = 50;
const PAGE = 100;
/** So long a search asks the store for more. */
const MOST_MS = 3_000;
/** For the tools that a run has called before, so many trails are read, and so much of each. */
const MOST_TRAILS = 100;
const MOST_ENTRIES = 20;
/** A person's runs that have ended are looked for under so many issuers. */
const MOST_ISSUERS = 3;

/** Where a search goes on: the list, and the place in it. */
type Place = readonly [list: 'held' | 'stuck', after: string | undefined];

const ENDED_BY_KEY = 'A run that has ended is found by its whole key';

export async function searchRuns(
  runs: Runs,
  { text = '', withinMs, after }: SearchedQuery,
  { can, hasIndex }: { readonly can: Abilities; readonly hasIndex: boolean },
): Promise<Searched> {
  const began = performance.now();
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = new Map<string, RunView>();
  const add = (view: RunView): void => {
    if (isWithin(view, withinMs)) found.set(view.run, view);
  };
  // The whole key finds a run wherever it stands, and in a store that keeps no index.
  const exact = text === '' || after !== undefined ? undefined : await runs.read(text);
  if (exact !== undefined) add(exact);
  if (!hasIndex) {
    const unreached = ['This store keeps no index: a run is found by its whole key alone.'];
    return { views: [...found.values()], looked: found.size, unreached };
  }
  const tools = workflowGraph(runs.gate).tools.map(({ name }) => name.toLowerCase());
  const isTool = words.some((word) => tools.some((tool) => tool.includes(word)));
  const issuers = new Set<string>();
  let looked = 0;
  let trails = 0;
  let isTrailUnread = false;
  let place: Place | undefined = after === undefined ? ['held', undefined] : placeIn(after);
  while (place !== undefined && looked < MOST_LOOKED_AT && found.size < MOST_FOUND) {
    const [list, from]: Place = place;
    const page = { limit: PAGE, after: from };
    const part: RunViews =
      list === 'held' ? await runs.held(page) : await runs.stuck({ ...page, forMs: 0 });
    for (const view of part.runs) {
      looked++;
      const issuer = issuerIn(view.run);
      if (issuer !== undefined) issuers.add(issuer);
      const facts = factsOf(view, can);
      const missing = words.filter((word) => !facts.some((fact) => fact.includes(word)));
      if (missing.length === 0) add(view);
      else if (isTool && missing.every((word) => tools.some((tool) => tool.includes(word)))) {
        if (trails >= MOST_TRAILS) isTrailUnread = true;
        else {
          trails++;
          const called = await toolsOf(runs, view.run);
          if (missing.every((word) => called.some((tool) => tool.includes(word)))) add(view);
        }
      }
    }
    if (part.next !== undefined) place = [list, part.next];
    else place = list === 'held' ? ['stuck', undefined] : undefined;
    if (performance.now() - began > MOST_MS) break;
  }
  const isPerson = can.keys && words.length === 1 && after === undefined;
  if (isPerson) {
    const principals = [
      text,
      ...[...issuers].slice(0, MOST_ISSUERS).map((issuer) => ({ issuer, subject: text })),
    ];
    for (const principal of principals) {
      const { runs: keys } = await runs.list({ principal, limit: MOST_FOUND });
      for (const run of keys) {
        if (found.size >= MOST_FOUND) break;
        const view = found.has(run) ? undefined : await runs.read(run);
        if (view !== undefined) add(view);
      }
    }
  }
  const unreached = [
    ...(place === undefined ? [] : ['There are more runs than this search has looked at.']),
    `${ENDED_BY_KEY}${can.keys ? ', or by the whole name of its principal.' : ' alone.'}`,
    ...(isTool
      ? [
          `Of what a run called before, the newest ${MOST_ENTRIES} entries of its trail were read` +
            `${isTrailUnread ? `, and of ${MOST_TRAILS} runs only.` : '.'}`,
        ]
      : []),
  ];
  const next = place === undefined ? {} : { next: JSON.stringify(place) };
  return { views: [...found.values()].sort(heldFirst), looked, unreached, ...next };
}

function heldFirst(a: RunView, b: RunView): number {
  return Number(b.status === 'held') - Number(a.status === 'held');
}

function placeIn(text: string): Place {
  // The server itself has sealed it.
  const [list, after] = JSON.parse(text) as [Place[0], string | null];
  return [list, after ?? undefined];
}

function isWithin({ snapshot, claim, unmovedForMs, heldForMs }: RunView, withinMs?: number) {
  if (withinMs === undefined) return true;
  const now = unmovedForMs === undefined ? Date.now() : snapshot.updatedAt + unmovedForMs;
  const newest = Math.max(snapshot.updatedAt, claim?.since ?? 0);
  return now - newest <= withinMs || (heldForMs !== undefined && heldForMs <= withinMs);
}

/** In small letters. A visitor without `keys` could guess a key piece by piece. */
function factsOf({ run, state, status, claim }: RunView, { keys }: Abilities): readonly string[] {
  const step = status === 'idle' ? undefined : claim;
  const { actor, args } = step?.entry ?? {};
  const facts = [
    runDigest(run),
    state,
    step?.tool,
    actor,
    args === undefined ? undefined : JSON.stringify(args),
    keys ? run : undefined,
  ];
  return facts.flatMap((fact) => (fact === undefined ? [] : [fact.toLowerCase()]));
}

async function toolsOf(runs: Runs, run: string): Promise<readonly string[]> {
  const entries = await runs.history(run, MOST_ENTRIES);
  return entries.flatMap(({ tool }) => (tool === undefined ? [] : [tool.toLowerCase()]));
}

/** Of a principal's own run: whose subject is looked for is known under the same issuers. */
function issuerIn(run: string): string | undefined {
  const [, named] = /^principal (.*)$/s.exec(run) ?? [];
  try {
    const parts: unknown = JSON.parse(named ?? 'null');
    const issuer: unknown = Array.isArray(parts) && parts.length === 2 ? parts[0] : undefined;
    return typeof issuer === 'string' ? issuer : undefined;
  } catch {
    return undefined;
  }
}
