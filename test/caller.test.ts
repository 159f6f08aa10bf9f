import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { expect, it, onTestFinished } from 'vitest';

const PACKAGE = new URL('../dist/', import.meta.url);

/** What Node prints of a program that ends with an error. */
async function printedBy(line: string): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'interlock-caller-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const from = (path: string) => JSON.stringify(new URL(path, PACKAGE).href);
  const program = `import * as interlock from ${from('index.js')};
import { runsOf } from ${from('runs/index.js')};
import { sqliteStore } from ${from('stores/sqlite.js')};
const { fsmGate, memoryStore, sessionStore, StateMachineGate, stateSync } = interlock;
const states = { empty: { on: { ADD: 'full' } }, full: {} };
const gate = new StateMachineGate({ initial: 'empty', states });
${line}
`;
  const file = join(folder, 'app.mjs');
  writeFileSync(file, program);
  return new Promise((resolve) => {
    execFile(process.execPath, [file], (_, __, printed) =>
      resolve(printed.replaceAll(pathToFileURL(folder).href, '')),
    );
  });
}

it.each([
  'sessionStore({ stoer: 1 });',
  'fsmGate(gate, { leasMs: 1 });',
  'stateSync({ polices: [] });',
  'memoryStore({ maxRun: 1 });',
  'sqliteStore({ databas: 1 });',
  'runsOf(gate, { sesions: 1 });',
  "new StateMachineGate({ initial: 'ful', states });",
  "StateMachineGate.fromOrder({ pay: { afer: 'scan' } });",
  "gate.bindTool('pay', 'ful');",
  'gate.bind(1);',
])("shows the app's own line above a mistake: %s", { timeout: 60_000 }, async (line) => {
  const printed = await printedBy(line);
  const [place, shown, , , message = '', first] = printed.split('\n');
  expect(place).toMatch(/app\.mjs:7$/);
  expect(shown).toBe(line);
  expect(message).toContain('ERR_INTERLOCK_');
  expect(first).toMatch(/^ {4}at .*app\.mjs:7:\d+/);
});
