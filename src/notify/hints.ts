import * as z from 'zod/mini';
import type { ListKind } from '../wire/json-rpc.ts';
import type { NotificationBus } from './bus.ts';

/** What instances tell each other about a session. Each is a hint: the state is in the store. */
export type Hint =
  /** The client should hear this, on whichever instance holds its stream. */
  | { readonly kind: 'notify'; readonly method: string }
  /**
   * This instance holds a stream of the session, opened at that time: it is the one to speak on, if
   * it is the newest.
   */
  | { readonly kind: 'stream'; readonly openedAt: number }
  /** It does not hold one any more. */
  | { readonly kind: 'silence' }
  /** The client cancelled this request, which some other instance may have waiting. */
  | { readonly kind: 'cancelled'; readonly id: string | number }
  /**
   * Lists of a run that several connections share are others now; of its tools where it does not
   * say which. One session, `but`, is told by itself.
   */
  | { readonly kind: 'changed'; readonly lists?: readonly ListKind[]; readonly but?: string }
  /** The session has ended. */
  | { readonly kind: 'ended' };

const LISTS = ['tools', 'prompts', 'resources'] as const satisfies readonly ListKind[];

const envelope = z.intersection(
  z.object({ v: z.literal(1), to: z.string(), from: z.string() }),
  z.discriminatedUnion('kind', [
    z.object({ kind: z.literal('notify'), method: z.string() }),
    z.object({ kind: z.literal('stream'), openedAt: z.number() }),
    z.object({ kind: z.literal('silence') }),
    z.object({ kind: z.literal('cancelled'), id: z.union([z.string(), z.number()]) }),
    z.object({
      kind: z.literal('changed'),
      lists: z.optional(z.array(z.enum(LISTS))),
      but: z.optional(z.string()),
    }),
    z.object({ kind: z.literal('ended') }),
  ]),
);

/**
 * A hint with its address: `to` names the session without giving its id away, `from` the instance
 * that sent it.
 */
export type AddressedHint = z.output<typeof envelope>;

/**
 * Reads what came over the bus; `undefined` for what another app, or another version, may have
 * sent.
 */
export function readHint(text: string): AddressedHint | undefined {
  try {
    return envelope.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}

/**
 * Rejects where the bus cannot send it, also one that throws instead: a hint is sent in the midst
 * of other things, and from timers.
 */
export async function sendHint(
  bus: NotificationBus,
  hint: Hint & { to: string; from: string },
): Promise<void> {
  await bus.publish(JSON.stringify({ v: 1, ...hint }));
}
