/**
 * Which gates have served the runs of a workflow, as the store keeps it. Hides where that stands,
 * how several deployments write it at once, and how many of them are kept.
 */
import type { Clock } from '../basics/clock.ts';
import { newToken } from '../basics/names.ts';
import { isTable } from '../basics/options.ts';
import type { AtomicStateStore, Json } from '../stores/store.ts';
import { type GateNote, noteOf } from '../workflow/gate-note.ts';
import type { Workflow } from '../workflow/workflow.ts';

/** A gate that has served the runs of a workflow. */
export interface NotedGate extends GateNote {
  /** When a process first noted it, in milliseconds since the epoch by that process's clock. */
  readonly first: number;
  /** When a process noted it last, where it had not been the newest. */
  readonly last: number;
}

type NotesStore = Pick<AtomicStateStore, 'readSwitch' | 'swapSwitch'>;

/** How many gates are kept. Two deployments that serve side by side take turns among them. */
const MOST_GATES = 4;

/** How often a note is written anew where others write too. */
const MOST_TRIES = 5;

/** The format of a note. A note of another one is carried along, and not read. */
const FORMAT = 1;

/**
 * Notes are kept as a switch is: written by comparing revisions, and never expired. No workflow has
 * such a name.
 */
function nameOf(workflow: string): string {
  return `gates:${workflow}`;
}

/**
 * Notes the gate, unless it is the newest one that the store has. Never rejects: what fails is
 * reported as a failure of the store, and the next process notes the gate.
 */
export async function noteGate(store: NotesStore, workflow: Workflow, clock: Clock): Promise<void> {
  const name = nameOf(workflow.id);
  try {
    const note = noteOf(workflow);
    for (let tries = 1; tries <= MOST_TRIES; tries++) {
      const record = await store.readSwitch?.(name);
      const found = listIn(record?.value);
      if (isNote(found[0]) && found[0].digest === note.digest) return;
      const own = found.find((each) => isNote(each) && each.digest === note.digest);
      const now = clock.now();
      const first = isNote(own) ? own.first : now;
      const others = found.filter((each) => each !== own);
      const gates = [{ format: FORMAT, ...note, first, last: now }, ...others].slice(0, MOST_GATES);
      const next = { value: { gates } as unknown as Json, revision: newToken() };
      if ((await store.swapSwitch?.(name, record?.revision, next)) !== false) return;
    }
  } catch {
    // A call waits for no note, and fails for none.
  }
}

/** The gates that have served the runs of a workflow, the newest first. */
export async function notedGates(
  store: NotesStore,
  workflow: string,
): Promise<readonly NotedGate[]> {
  const record = await store.readSwitch?.(nameOf(workflow));
  return listIn(record?.value).flatMap((each): NotedGate[] => {
    if (!isNote(each)) return [];
    const { format: _, ...note } = each;
    return [note];
  });
}

function listIn(value: Json | undefined): readonly unknown[] {
  return isTable(value) && Array.isArray(value.gates) ? value.gates : [];
}

/** Another version may have noted what this one does not understand. */
function isNote(value: unknown): value is NotedGate & { readonly format: number } {
  return (
    isTable(value) &&
    value.format === FORMAT &&
    typeof value.digest === 'string' &&
    Array.isArray(value.tools) &&
    typeof value.first === 'number' &&
    typeof value.last === 'number'
  );
}
