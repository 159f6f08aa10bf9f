/** One of the two decisions that are compared: the package's source in a folder. */
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

/** What a case needs of the package. Both sides must still have it. */
export type Side = Pick<
  typeof import('../../src/index.ts'),
  | 'StateMachineGate'
  | 'currentStep'
  | 'explain'
  | 'fsmGate'
  | 'handleKey'
  | 'heldOutcomes'
  | 'managedHandle'
  | 'memoryStore'
  | 'principalKey'
  | 'runsOf'
  | 'sessionKey'
  | 'sessionStore'
  | 'whatIf'
> &
  Pick<typeof import('../../src/fetch.ts'), 'gateFetch'>;

/** Loads a module graph of its own: the folder is part of each module's name. */
export async function loadSide(folder: string): Promise<Side> {
  const load = (file: string): Promise<unknown> =>
    import(pathToFileURL(join(folder, 'src', file)).href);
  const [index, fetch] = await Promise.all([load('index.ts'), load('fetch.ts')]);
  return { ...(index as object), ...(fetch as object) } as Side;
}
