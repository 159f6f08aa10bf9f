/**
 * Prints what `npm test` cost, and `tests: 123 passed, 0 failed` from what Vitest's JSON reporter wrote. A file that
 * could not be loaded has failed. Ends with 1 where all passed and took 15 % more CPU time than `cost.json` says.
 *
 * To renew that file, after a change that is worth its time: run `.ci/run` three times on a machine that does nothing
 * else, and write into it what the run in the middle prints behind `cost:`. Without the file no cost is too much.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const SLACK = 1.15;

const [folder] = process.argv.slice(2);
const path = join(folder, 'tests.json');
if (!existsSync(path)) console.log('The tests did not run.');
const files = existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')).testResults : [];
const count = (status) =>
  files.flatMap((file) => file.assertionResults).filter((test) => test.status === status).length;

const broken = files.filter(
  (file) =>
    file.status === 'failed' && file.assertionResults.every(({ status }) => status !== 'failed'),
);
const failed = count('failed') + broken.length;
const skipped =
  files.flatMap((file) => file.assertionResults).length - count('passed') - count('failed');

const [wall = 0, user = 0, system = 0] = readFileSync(join(folder, 'times'), 'utf8')
  .split(' ')
  .map(Number);
const cost = { cpuSeconds: Math.round(user + system), referenceMs: referenceMs() };
console.log(`cost: ${JSON.stringify(cost)}, in ${Math.round(wall)} s`);
const record = new URL('cost.json', import.meta.url);
if (existsSync(record)) {
  const recorded = JSON.parse(readFileSync(record, 'utf8'));
  const speed = cost.referenceMs / recorded.referenceMs;
  const most = Math.round(recorded.cpuSeconds * speed * SLACK);
  const isTooMuch = failed === 0 && cost.cpuSeconds > most;
  console.log(`${isTooMuch ? 'TOO MUCH: ' : ''}at most ${most} s of CPU time on this machine`);
  if (isTooMuch) process.exitCode = 1;
}

const others = skipped > 0 ? `, ${skipped} skipped` : '';
console.log(`tests: ${count('passed')} passed, ${failed} failed${others}`);

/** The CPU time of some work that is always the same, by which machines are compared. The best of ten. */
function referenceMs() {
  const items = Array.from({ length: 400 }, (_, id) => ({
    id,
    name: `item ${id}`,
    tags: ['a', `${id}`],
  }));
  const text = JSON.stringify(items);
  const times = Array.from({ length: 10 }, () => {
    const before = process.cpuUsage();
    for (let round = 0; round < 300; round++) {
      const byName = new Map(JSON.parse(text).map((item) => [item.name, item]));
      JSON.stringify([...byName.values()]);
    }
    const { user, system } = process.cpuUsage(before);
    return (user + system) / 1_000;
  });
  return Math.round(Math.min(...times));
}
