/**
 * An operator in a process of its own, so that it can be killed in the middle of what it does.
 * Takes its store's address as JSON, then one command after the other, each from its parent.
 */

import { StoreUnavailable } from '../../src/index.ts';
import { type Runs, runsOf } from '../../src/runs/index.ts';
import { now } from '../checker/evidence.ts';
import { gateOf } from '../checker/machines.ts';
import { openStore } from './stores.ts';
import { MACHINES, type WorkflowName } from './workflows.ts';

export interface Command {
  readonly id: number;
  readonly workflow: WorkflowName;
  readonly does: 'freezeAll' | 'unfreezeAll' | 'freeze' | 'unfreeze';
  /** For a whole workflow: one of its tools. */
  readonly tool?: string | undefined;
  /** For `freeze` and `unfreeze`. */
  readonly run?: string | undefined;
  readonly by: { readonly actor: string; readonly note: string };
}

export interface Reply {
  readonly id: number;
  readonly asked: number;
  readonly answered: number;
  /** `true` where that changed something, else the reason why not. */
  readonly told: true | string;
  /** Where there was no answer. */
  readonly error?: { readonly text: string; readonly isAway: boolean };
}

async function obey(runs: Runs, { does, tool, run = '', by }: Command): Promise<true | string> {
  const scope = { ...by, ...(tool !== undefined && { tool }) };
  switch (does) {
    case 'freezeAll': {
      const told = await runs.freezeAll(scope);
      return told.frozen || told.reason;
    }
    case 'unfreezeAll': {
      const told = await runs.unfreezeAll(scope);
      return told.unfrozen || told.reason;
    }
    case 'freeze': {
      const told = await runs.freeze(run, by);
      return told.frozen || told.reason;
    }
    case 'unfreeze': {
      const told = await runs.unfreeze(run, by);
      return told.unfrozen || told.reason;
    }
  }
}

const { store } = await openStore(JSON.parse(process.argv[2] ?? ''));
// It is told of the same failures by its calls.
const onError = (): void => {};
const workflows = new Map(
  Object.entries(MACHINES).map(([name, machine]) => [
    name,
    runsOf(gateOf(machine), { store, onError }),
  ]),
);
process.on('disconnect', () => process.exit());
process.on('message', async (command: Command) => {
  const runs = workflows.get(command.workflow);
  if (runs === undefined) throw new Error(`there is no workflow ${command.workflow}`);
  const asked = now();
  const reply = await obey(runs, command).then(
    (told) => ({ told }),
    (error: unknown) => ({
      told: 'error',
      error: { text: String(error), isAway: error instanceof StoreUnavailable },
    }),
  );
  process.send?.({ id: command.id, asked, answered: now(), ...reply } satisfies Reply);
});
process.send?.('ready');
