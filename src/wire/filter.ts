import type { JsonObject } from './json-rpc.ts';
import type { Message } from './message.ts';
import type { PageStage } from './pages.ts';
import type { HeadPort } from './ports.ts';
import { after, inOrder, type MaybePromise } from './task-line.ts';

/**
 * What one middleware does in an exchange. Responses run through the filters in the order of their
 * stages, however the middlewares are mounted: what a step came to is known before anybody
 * decorates it.
 */
export interface Filter extends PageStage {
  readonly stage: 'session' | 'gate' | 'sync';
  /**
   * Whether these bytes could hold a message that this filter must see. Cheap; `true` when in
   * doubt.
   */
  wants?(bytes: Buffer): boolean;
  /** Right before the headers go. Last chance to change them; may wait. */
  onHead?(): MaybePromise<void>;
  onMessage?(message: Message): MaybePromise<void>;
  /** The upstream is done; what is returned is sent after its last message. */
  onEnd?(): MaybePromise<JsonObject[]>;
  /**
   * Whether an event stream goes on although the upstream is done; whoever says so ends it through
   * the tap.
   */
  staysOpen?(): boolean;
  /** The host says that nothing of the request was sent on, though it was handed to it. */
  onNotForwarded?(): Promise<unknown>;
  /** The response cannot be read; the client is told so. */
  onUnreadable?(): MaybePromise<void>;
  /** The client left while its departure is kept from the upstream. */
  onDepart?(): void;
  /**
   * The connection closed, or the upstream finished after the client had left. Told again where
   * headers come after that.
   */
  onClose?(): void;
  /**
   * Answers instead of the upstream, whose status and headers are known: with a stream, or with
   * nothing but headers.
   */
  takesOver?(res: HeadPort): 'stream' | 'empty' | undefined;
}

const STAGES = ['session', 'gate', 'sync'] as const;

/**
 * The filters with one more, in the order of their stages; within one, in the order of mounting.
 */
export function withFilter(filters: readonly Filter[], filter: Filter): Filter[] {
  const later = filters.findIndex(
    ({ stage }) => STAGES.indexOf(stage) > STAGES.indexOf(filter.stage),
  );
  return filters.toSpliced(later === -1 ? filters.length : later, 0, filter);
}

/** Whether one of them must see these bytes. */
export function anyWants(filters: readonly Filter[], bytes: Buffer): boolean {
  for (const filter of filters) if (filter.wants?.(bytes)) return true;
  return false;
}

/** What they still have to say, as further messages. */
export function lastWords(filters: readonly Filter[]): MaybePromise<readonly JsonObject[]> {
  let last: readonly JsonObject[] = [];
  const asked = inOrder(filters, (filter) => {
    if (filter.onEnd === undefined) return;
    return after(filter.onEnd(), (more) => {
      if (more.length > 0) last = [...last, ...more];
    });
  });
  return asked === undefined ? last : asked.then(() => last);
}

/** Tells each of them of the connection, at which nothing may be thrown. */
export function tell(
  of: { readonly filters: readonly Filter[]; onError(error: unknown): void },
  event: (filter: Filter) => void,
): void {
  for (const filter of of.filters) {
    try {
      event(filter);
    } catch (error) {
      of.onError(error);
    }
  }
}
