import type { NotificationBus } from '../notify/bus.ts';
import type { OpenResult } from '../stores/store.ts';
import type { Clock } from './clock.ts';
import type { GuardedStore } from './guarded-store.ts';
import type { LiveSession } from './live-session.ts';
import type { PrincipalOf } from './principal.ts';
import type { RunKeyStrategy } from './run-key.ts';

/** How the sessions of one mounted middleware are kept. */
export interface SessionsConfig {
  readonly store: GuardedStore;
  /** What names runs, in order of preference. */
  readonly keys: readonly RunKeyStrategy[];
  readonly clock: Clock;
  readonly principal: PrincipalOf | undefined;
  readonly idleMs: number;
  readonly sessionCacheMs: number;
  readonly maxSessions: number;
  readonly maxSessionsPerPrincipal: number;
  readonly maxStreams: number;
  readonly serveStreams: boolean;
  readonly keepAliveMs: number;
  readonly bus: NotificationBus | undefined;
  /** What is likely wrong with the store where this process runs; told with the first run. */
  readonly storeWarning: string | undefined;
  readonly onError: (error: unknown) => void;
  readonly onWarning: (warning: string) => void;
}

/** Where the parts of an exchange begin and end a run. */
export interface SessionKeeper {
  readonly config: SessionsConfig;
  /** Starts a run under the id that the client will send from now on, unless that one is in use. */
  open(run: string, binding: string | undefined, minted: boolean): Promise<OpenResult>;
  /** Ends a run; from now on it is unknown. */
  close(session: LiveSession): Promise<void>;
}
