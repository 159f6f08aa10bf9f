import type { ActionListener } from './actions.ts';
import type { AnyBinding } from './binding.ts';
import type { Deployment } from './deployment.ts';
import type { ErrorListener, Listeners } from './listeners.ts';
import type { LoopShield } from './loop-shield.ts';
import type { Model } from './position.ts';
import type { BoundReads } from './reads.ts';

/** What a `Workflow` is made of. */
export interface WorkflowParts {
  readonly model: Model;
  /** By tool, in binding order; no list is empty. */
  readonly tools: ReadonlyMap<string, readonly AnyBinding[]>;
  readonly warnings: readonly string[];
  readonly listeners: Listeners;
  readonly reads: BoundReads;
  readonly deployment: Deployment;
  readonly shield: LoopShield | undefined;
  readonly onAction: ActionListener | undefined;
  /** Told what `onAction` throws where nobody else is. */
  readonly onError: ErrorListener;
}
