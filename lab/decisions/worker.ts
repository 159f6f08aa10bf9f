/** A process that plays the ranges of cases which its parent sends. */
import { takeOver } from './world.ts';

// Before any module of a side draws its first random number.
takeOver();

const { comparing } = await import('./compare.ts');
const { comparingObserved } = await import('./observed.ts');
const { loadSide } = await import('./side.ts');

const [newerFolder = '', olderFolder = '', observes] = process.argv.slice(2);
const newer = await loadSide(newerFolder);
const older = olderFolder === '' ? undefined : await loadSide(olderFolder);
process.on('message', (range: { readonly from: number; readonly count: number }) => {
  const compared =
    observes === undefined ? comparing(newer, older, range) : comparingObserved(newer, range);
  compared.then(
    (result) => process.send?.(result),
    (error: unknown) => {
      console.error(error);
      process.exit(1);
    },
  );
});
process.on('disconnect', () => process.exit(0));
process.send?.('ready');
