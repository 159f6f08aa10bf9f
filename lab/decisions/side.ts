/** One of the two decisions that are compared: the package's source in a folder. */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { runInThisContext } from 'node:vm';
import { build } from 'esbuild';

/** What a case needs of the package. Both sides must still have it. */
export type Side = Pick<
  typeof import('../../src/index.ts'),
  | 'StateMachineGate'
  | 'currentStep'
  | 'fsmGate'
  | 'handleKey'
  | 'managedHandle'
  | 'memoryStore'
  | 'principalKey'
  | 'sessionKey'
  | 'sessionStore'
> &
  Pick<typeof import('../../src/runs/index.ts'), 'explain' | 'heldOutcomes' | 'runsOf' | 'whatIf'> &
  Pick<typeof import('../../src/doors/fetch.ts'), 'gateFetch'>;

/** Loads a module graph of its own. */
export async function loadSide(folder: string): Promise<Side> {
  // Earlier revisions had all of it in one entry.
  const entries = [
    ...['./src/index.ts', './src/runs/index.ts'],
    ...['./src/doors/fetch.ts', './src/fetch.ts'],
  ];
  const contents = entries
    .filter((entry) => existsSync(join(folder, entry)))
    .map((entry) => `export * from '${entry}';`)
    .join('\n');
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: folder },
    bundle: true,
    write: false,
    platform: 'node',
    target: 'node20',
    format: 'cjs',
    packages: 'external',
    // A script without a file cannot import.
    supported: { 'dynamic-import': false },
    // Cases tell the names of errors.
    keepNames: true,
  });
  const side = { exports: {} };
  const load = runInThisContext(`(module, require) => {${outputFiles[0]?.text}\n}`);
  load(side, createRequire(join(folder, 'package.json')));
  return side.exports as Side;
}
