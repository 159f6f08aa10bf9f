import * as z from 'zod/mini';
import { atCaller } from '../basics/errors.ts';
import {
  clockOption,
  functionOption,
  lazyOptions,
  optionalFunction,
  parseOptions,
} from '../basics/options.ts';
import {
  type CacheDirective,
  type InvalidationEvent,
  type PolicyDefaults,
  PolicyEngine,
  type ResourceNotification,
  type StateSyncConfig,
  type SyncPolicy,
} from '../policy/engine.ts';
import { LateNotes, type SyncConfig, SyncFilter } from '../policy/sync-filter.ts';
import { PageMemory, ToolHints } from '../wire/pages.ts';
import {
  type CommonOptions,
  commonShape,
  type Middleware,
  type MountedStage,
  mount,
  stageWith,
} from './middleware.ts';
import { ToolDeclaration } from './tool.ts';

/** Options of {@link stateSync} beside the configuration itself. */
export interface StateSyncOptions<D extends string = CacheDirective>
  extends StateSyncConfig<D>,
    CommonOptions {
  /** Policies of single tools, declared with `tool()`. They come before `policies`. */
  readonly tools?: readonly ToolDeclaration<string, string>[] | undefined;
  /**
   * Where the invalidation block goes. Default `append`: after the tool's own content, because
   * clients read `content[0]`.
   */
  readonly placement?: 'append' | 'prepend' | undefined;
  /**
   * The clock for `InvalidationEvent.timestamp`, in milliseconds since the epoch. Default
   * `Date.now`.
   */
  readonly now?: (() => number) | undefined;
}

const optionsSchema = lazyOptions(() => ({
  policies: z._default(
    z.custom<readonly SyncPolicy[]>((value) => Array.isArray(value), 'expected array'),
    () => [],
  ),
  defaults: z.optional(z.custom<PolicyDefaults>(() => true)),
  onInvalidation: optionalFunction<(event: InvalidationEvent) => void>(),
  notificationSink: z.optional(
    functionOption<(notification: ResourceNotification) => void | Promise<void>>(),
  ),
  tools: z._default(z.array(z.instanceof(ToolDeclaration)), () => []),
  placement: z._default(z.enum(['append', 'prepend']), 'append'),
  now: clockOption(),
  ...commonShape(),
}));

/**
 * Writes cache directives into tool descriptions. After a successful call it notes for the model
 * which data went stale. It needs no store and no other middleware. TypeScript may have widened the
 * directives to strings, as in `const policies = [{ … }]`: they are checked here.
 *
 * @example
 * ```ts
 * const policies = [{ match: 'cart_add', invalidates: ['cart_*'] }];
 * app.all('/mcp', stateSync({ policies }), handler);
 * ```
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG`, `ERR_INTERLOCK_POLICY`
 */
export function stateSync<D extends string>(
  options: StateSyncOptions<D> & (string extends D ? unknown : never),
): Middleware;
export function stateSync(options: StateSyncOptions): Middleware;
export function stateSync(options: StateSyncOptions<string>): Middleware {
  return atCaller(stateSync, () => mount([syncStage('stateSync()', options)]));
}

/** The stage that writes directives and invalidation blocks. */
export function syncStage(what: string, options: StateSyncOptions<string>): MountedStage {
  const parsed = parseOptions(what, optionsSchema, options);
  const declared = parsed.tools.flatMap(({ policy }) => policy ?? []);
  const config: SyncConfig = {
    engine: new PolicyEngine([...declared, ...parsed.policies], parsed.defaults),
    placement: parsed.placement,
    now: parsed.now,
    onInvalidation: parsed.onInvalidation,
    notificationSink: parsed.notificationSink,
    notes: new LateNotes(),
    hints: new ToolHints(),
    pages: new PageMemory(),
  };
  return stageWith(parsed, (exchange, { events }) => {
    // It may be mounted on two paths that match, and acts once.
    const isJoined = exchange.filters.some(
      (filter) => filter instanceof SyncFilter && filter.config === config,
    );
    if (!isJoined) exchange.join(new SyncFilter(config, exchange, events));
    return true;
  });
}
