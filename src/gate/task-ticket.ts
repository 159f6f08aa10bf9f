import { digestOf } from '../session/digest.ts';
import type { Admission } from '../session/run.ts';
import type { CallOrigin } from '../step/move.ts';
import type { AtomicStateStore } from '../stores/store.ts';
import type { Position } from '../workflow/position.ts';

/** What settles the step of a call that created a task, whichever process sees the task's end. */
export interface Ticket {
  readonly run: string;
  /** The claim's token. */
  readonly token: string;
  readonly idempotencyKey: string;
  /** Where the call found the run, and what else its moves depend on. */
  readonly from: Position;
  readonly origin: CallOrigin;
  /** Whether its handler changed the run's data. */
  readonly isUpdated?: boolean;
}

const WORKFLOW = 'task';

/**
 * The key of the run that a ticket is kept in, one for each gate. There is a space in it, so that
 * no client can name it by a header; and whoever does not own the task asks for another one.
 */
export function ticketRun(owner: Admission['taskOwner'], taskId: string, workflow: string): string {
  return `task ${digestOf([...owner, taskId, workflow])}`;
}

/**
 * Keeps a ticket for as long as the task may live, and for a late end another `ttlMs`: one
 * operation, since a first claim saves what it begins with.
 */
export async function keepTicket(
  store: AtomicStateStore,
  run: string,
  ticket: Ticket,
  { lifeMs, ttlMs }: { readonly lifeMs: number; readonly ttlMs: number },
): Promise<void> {
  const context = JSON.stringify(ticket);
  const keep = async (): Promise<boolean> => {
    const claimed = await store.claim({
      run,
      workflow: WORKFLOW,
      token: ticket.token,
      step: { tool: ticket.origin.tool, digest: '', uncertain: 'retry' },
      states: undefined,
      initial: { state: 'open', updatedAt: 0, context },
      create: {},
      // A store that is full spares runs in which a claim lives.
      leaseMs: lifeMs,
      ttlMs: lifeMs + ttlMs,
    });
    return claimed.status === 'claimed' && claimed.snapshot.context === context;
  };
  if (await keep()) return;
  // The upstream gave this id to an earlier task, which it has forgotten by now.
  await store.delete(run);
  await keep();
}

export async function findTicket(
  store: AtomicStateStore,
  run: string,
  ttlMs: number,
): Promise<Ticket | undefined> {
  const record = await store.read(run, ttlMs);
  const text = record?.workflows[WORKFLOW]?.snapshot.context;
  return typeof text === 'string' ? (JSON.parse(text) as Ticket) : undefined;
}
