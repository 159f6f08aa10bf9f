/**
 * What operators say of all runs of a workflow: stop them, let them go on, enforce or observe them.
 * Hides that each word is saved before it is reported.
 */
import { switchOf } from '../gate/outside.ts';
import type { RunsMover } from './runs-mover.ts';
import type {
  AllFrozen,
  AllUnfrozen,
  FreezeAllOptions,
  FreezeOptions,
  ModeSet,
} from './runs-options.ts';

export async function stopAll(
  mover: RunsMover,
  { tool, ...by }: FreezeAllOptions,
): Promise<AllFrozen> {
  const at = mover.clock.now();
  const isChanged = await switchOf(mover).set(tool, { ...by, at });
  if (!isChanged) return { frozen: false, reason: 'frozen' };
  report(mover, { type: 'workflow.frozen', ...(tool && { tool }), ...by });
  return { frozen: true };
}

export async function letAllGoOn(
  mover: RunsMover,
  { tool, ...by }: FreezeAllOptions,
): Promise<AllUnfrozen> {
  const isChanged = await switchOf(mover).set(tool, undefined);
  if (!isChanged) return { unfrozen: false, reason: 'not-frozen' };
  report(mover, { type: 'workflow.unfrozen', ...(tool && { tool }), ...by });
  return { unfrozen: true };
}

export async function setMode(
  mover: RunsMover,
  enforce: boolean,
  { living, ...by }: FreezeOptions & { readonly living: boolean },
): Promise<ModeSet> {
  const at = mover.clock.now();
  const isChanged = await switchOf(mover).setMode({ enforce, living, ...by, at });
  if (!isChanged) return { changed: false, reason: 'same' };
  report(
    mover,
    enforce ? { type: 'workflow.enforced', living, ...by } : { type: 'workflow.observed', ...by },
  );
  return { changed: true };
}

type Said = {
  readonly type: `workflow.${'frozen' | 'unfrozen' | 'observed' | 'enforced'}`;
  readonly tool?: string;
  readonly living?: boolean;
} & FreezeOptions;

function report({ events, workflow }: RunsMover, said: Said): void {
  if (events.isOn) events.publish({ ...said, workflow: workflow.id });
}
