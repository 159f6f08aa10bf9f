/**
 * A search over the runs of a workflow. Hides what each run is found by, and how far the search
 * goes. It reads a bounded number of runs, and says what it did not reach.
 */

import { runDigest } from 'mcp-interlock';
import type { Runs, RunView, RunViews } from 'mcp-interlock/runs';
import type { Abilities, SearchPage, SearchRequest } from './api.ts';
import { isOf } from './options.ts';

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

/** So many runs are looked at, and so many found, by one search; for a whole digest, so many. */
const MOST_LOOKED_AT = 2_000;
const MOST_DIGESTS = 20_000;
const MOST_FOUND = 50;
const PAGE = 100;
/** So long a search asks the store for more. */
const MOST_MS = 3_000;
/** For the tools that a run has called before, so many trails are read, and so much of each. */
const MOST_TRAILS = 100;
const MOST_ENTRIES = 20;
/** A person's runs that have ended are looked for under so many issuers. */
const MOST_ISSUERS = 3;

/** Where a walk goes on: the list, and the place in it. */
type Place = readonly [list: 'held' | 'stuck', after: string | undefined];

interface WalkedPage {
  readonly views: readonly RunView[];
  /** Where the walk goes on after them; `undefined` where it ends. */
  readonly next: Place | undefined;
}

/** The runs that have not ended, page by page, the held ones first; some are there twice. */
async function* underWay(
  runs: Runs,
  limit: number,
  from: Place = ['held', undefined],
): AsyncGenerator<WalkedPage, void, void> {
  for (let place: Place | undefined = from; place !== undefined; ) {
    const [list, after]: Place = place;
    const page = { limit, after };
    const found: RunViews =
      list === 'held' ? await runs.held(page) : await runs.stuck({ ...page, forMs: 0 });
    if (found.next !== undefined) place = [list, found.next];
    else place = list === 'held' ? ['stuck', undefined] : undefined;
    yield { views: found.runs, next: place };
  }
}

interface SearchedWorkflow {
  readonly can: Abilities;
  /** The tools that the gate binds. */
  readonly tools: readonly string[];
  /** How much a held step is about, as the page shows it. */
  readonly amountOf: (view: RunView) => string | undefined;
}

/** In small letters. */
export function wordsIn(text: string): readonly string[] {
  return text.toLowerCase().split(/\s+/).filter(Boolean);
}

/** The words that neither begin the run's digest nor are a part of a fact. */
export function missingOf(
  words: readonly string[],
  digest: string,
  facts: readonly (string | undefined)[],
): readonly string[] {
  const known = facts.map((fact) => fact?.toLowerCase());
  return words.filter(
    (word) => !digest.startsWith(word) && !known.some((fact) => fact?.includes(word)),
  );
}

/** An amount as it is shown, and without what parts its thousands. */
export function amountFacts(amount: string | undefined): readonly string[] {
  return amount === undefined ? [] : [amount, amount.replaceAll(/(?<=\d),(?=\d)/g, '')];
}

export async function searchRuns(
  runs: Runs,
  { text = '', withinMs, after }: SearchedQuery,
  { can, tools, amountOf }: SearchedWorkflow,
): Promise<Searched> {
  const began = performance.now();
  const words = wordsIn(text);
  const found = new Map<string, RunView>();
  const add = (view: RunView): void => {
    if (isWithin(view, withinMs)) found.set(view.run, view);
  };
  // The whole key finds a run wherever it stands, and in a store that keeps no index.
  const exact = text === '' || after !== undefined ? undefined : await runs.read(text);
  if (exact !== undefined) add(exact);
  const trails = new Trails(runs, tools);
  const issuers = new Set<string>();
  const isDigest = /^[\da-f]{16}$/.test(text);
  const most = isDigest ? MOST_DIGESTS : MOST_LOOKED_AT;
  let looked = 0;
  let place: Place | undefined;
  const from = after === undefined ? undefined : placeIn(after);
  try {
    for await (const { views, next } of underWay(runs, PAGE, from)) {
      looked += views.length;
      place = next;
      for (const view of views) {
        const issuer = issuerIn(view.run);
        if (issuer !== undefined) issuers.add(issuer);
        const facts = factsOf(view, can, amountOf(view));
        const missing = missingOf(words, runDigest(view.run), facts);
        if (missing.length === 0 || (await trails.have(view.run, missing))) add(view);
      }
      // No other run has it, so there is nothing more to look at.
      if (isDigest && found.size > 0) place = undefined;
      if (place === undefined || looked >= most || found.size >= MOST_FOUND) break;
      if (performance.now() - began > MOST_MS) break;
    }
  } catch (error) {
    if (!isOf(error, 'ERR_INTERLOCK_STORE')) throw error;
    const unreached = ['This store keeps no index: a run is found by its whole key alone.'];
    return { views: [...found.values()], looked, unreached };
  }
  if (can.keys && words.length === 1 && after === undefined)
    await addPrincipals(runs, text, [...issuers].slice(0, MOST_ISSUERS), { found, add });
  const unreached = [
    ...(place === undefined ? [] : ['There are more runs than this search has looked at.']),
    can.keys
      ? 'A run that has ended is found by its whole key, or by the whole name of its principal.'
      : 'You may not see keys: a run that has ended is found by its whole key alone.',
    ...(words.some((word) => trails.isTool(word)) ? [trails.says] : []),
  ];
  const rest = place === undefined ? {} : { next: JSON.stringify(place) };
  return { views: [...found.values()].sort(heldFirst), looked, unreached, ...rest };
}

/** The tools that runs have called before, of a bounded number of trails. */
class Trails {
  readonly #runs: Runs;
  readonly #tools: readonly string[];
  #read = 0;
  #isOneUnread = false;

  constructor(runs: Runs, tools: readonly string[]) {
    this.#runs = runs;
    this.#tools = tools.map((tool) => tool.toLowerCase());
  }

  isTool(word: string): boolean {
    return this.#tools.some((tool) => tool.includes(word));
  }

  /** Whether the run has called tools with all these words in their names. */
  async have(run: string, words: readonly string[]): Promise<boolean> {
    if (!words.every((word) => this.isTool(word))) return false;
    if (this.#read >= MOST_TRAILS) {
      this.#isOneUnread = true;
      return false;
    }
    this.#read++;
    const entries = await this.#runs.history(run, MOST_ENTRIES);
    const called = entries.flatMap(({ tool }) => tool?.toLowerCase() ?? []);
    return words.every((word) => called.some((tool) => tool.includes(word)));
  }

  /** How far it looked. */
  get says(): string {
    const read = `the newest ${MOST_ENTRIES} entries of its trail were read`;
    const most = this.#isOneUnread ? `, and of ${MOST_TRAILS} runs only.` : '.';
    return `Of what a run called before, ${read}${most}`;
  }
}

/** Adds the runs of a principal who is named so, also those that have ended. */
async function addPrincipals(
  runs: Runs,
  subject: string,
  issuers: readonly string[],
  { found, add }: { found: ReadonlyMap<string, RunView>; add: (view: RunView) => void },
): Promise<void> {
  for (const principal of [subject, ...issuers.map((issuer) => ({ issuer, subject }))]) {
    const { runs: keys } = await runs.list({ principal, limit: MOST_FOUND });
    for (const run of keys) {
      if (found.size >= MOST_FOUND) break;
      const view = found.has(run) ? undefined : await runs.read(run);
      if (view !== undefined) add(view);
    }
  }
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

/** A visitor without `keys` could guess a key piece by piece. */
function factsOf(
  { run, state, status, claim, unsettled = [] }: RunView,
  { keys }: Abilities,
  amount: string | undefined,
): readonly (string | undefined)[] {
  const step = status === 'idle' ? undefined : claim;
  const { actor, args } = step?.entry ?? {};
  return [
    state,
    ...amountFacts(amount),
    step?.tool,
    ...unsettled.map(({ tool }) => tool),
    actor,
    args === undefined ? undefined : JSON.stringify(args),
    keys ? run : undefined,
  ];
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
