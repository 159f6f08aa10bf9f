/** Prints `tests: 123 passed, 0 failed` from what Vitest's JSON reporter wrote. A file that could not be loaded has failed. */
import { existsSync, readFileSync } from 'node:fs';

const [path] = process.argv.slice(2);
if (!existsSync(path)) console.log('The tests did not run.');
const files = existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')).testResults : [];
const count = (status) =>
  files.flatMap((file) => file.assertionResults).filter((test) => test.status === status).length;

const broken = files.filter(
  (file) =>
    file.status === 'failed' && file.assertionResults.every(({ status }) => status !== 'failed'),
);
const skipped =
  files.flatMap((file) => file.assertionResults).length - count('passed') - count('failed');
const others = skipped > 0 ? `, ${skipped} skipped` : '';
console.log(`tests: ${count('passed')} passed, ${count('failed') + broken.length} failed${others}`);
