import type { Clock } from '../clock.ts';
import type { NotificationBus } from '../notify/bus.ts';
import type { GuardedStore } from '../step/store-calls.ts';
import type { OpenResult } from '../stores/store.ts';
import type { LiveSession } from './live-session.ts';
import type { ClientOf, PrincipalOf } from './principal.ts';
import type { Owner } from './quotas.ts';
import type { RunKeyStrategy } from './run-key.ts';

/** How the sessions of one mounted middleware are kept. */
export interface SessionsConfig {
  readonly store: GuardedStore;
  /** What names runs, in order of preference. */
  readonly keys: readonly RunKeyStrategy[];
  readonly clock: Clock;
  readonly principal: PrincipalOf | undefined;
  readonly clientOf: ClientOf | undefined;
  readonly idleMs: number;
  readonly sessionCacheMs: number;
  readonly maxSessions: number;
  readonly maxSessionsPerPrincipal: number;
  readonly maxSessionsPerClient: number;
  readonly maxStreams: number;
  readonly serveStreams: boolean;
  readonly keepAliveMs: number;
  readonly bus: NotificationBus | undefined;
  /** What is likely wrong with the store where this process runs; told with the first run. */
  readonly storeWarning: string | undefined;
  readonly onError: (error: unknown) => void;
  readonly onWarning: (warning: string) => void;
}

/** Who opens a session: whom it is bound to, and among whose it counts. */
export interface Opening extends Owner {
  readonly binding: string | undefined;
}

/** Where the parts of an exchange begin and end a run. */
export interface SessionKeeper {
  readonly config: SessionsConfig;
  /**
   * Starts a run under the id that the client will send from now on, unless that one is in use.
   * `full`: its caller has as many sessions as he may have, and none of them can make way.
   */
  open(run: string, caller: Opening, minted: boolean): Promise<OpenResult['status'] | 'full'>;
  /** Ends a run; from now on it is unknown. */
  close(session: LiveSession): Promise<void>;
}
