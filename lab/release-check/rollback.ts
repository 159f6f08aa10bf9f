/**
 * An upgrade and the way back, between two packed releases with runs alive. Hides how a later
 * release is made of this working tree, and what each of the two must do with the other's runs.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type Consumer, ROOT } from '../../test/helpers/consumer.ts';
import { callOf, PROTOCOL, send } from '../../test/helpers/raw.ts';
import { freePort } from '../../test/services/ports.ts';
import { type Address, STORES } from './driver-servers.ts';

const run = promisify(execFile);
const SHOP = readFileSync(new URL('rollback-shop.ts', import.meta.url), 'utf8');

export const ROLLBACKS = ['within a format', 'across formats'] as const;
export type Rollback = (typeof ROLLBACKS)[number];

/** The later release: it writes a higher format. Across formats only it may move what it saved. */
const LATER = {
  'within a format': { version: '0.1.999', MOVES: 1 },
  'across formats': { version: '0.2.999', MOVES: 2 },
} as const;

/** Builds and packs a later release in `project`, and gives the path of its tarball. */
export async function packLater(rollback: Rollback, project: Consumer): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'interlock-later-'));
  try {
    const { stdout } = await run('git', ['ls-files'], { cwd: ROOT, maxBuffer: 2 ** 24 });
    for (const file of stdout.trim().split('\n')) cpSync(join(ROOT, file), join(folder, file));
    symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'), 'dir');
    const { version, MOVES } = LATER[rollback];
    change(join(folder, 'package.json'), /("version": ")[^"]*/, version);
    change(join(folder, 'src/workflow/format.ts'), /(const FORMAT = )\d+/, '2');
    change(join(folder, 'src/workflow/format.ts'), /(const MOVES = )\d+/, String(MOVES));
    await run(project.nodePath, ['--import', 'tsx', 'scripts/build.ts'], { cwd: folder });
    return await project.pack(folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function change(file: string, pattern: RegExp, value: string): void {
  const text = readFileSync(file, 'utf8');
  assert.match(text, pattern, file);
  writeFileSync(file, text.replace(pattern, `$1${value}`));
}

interface Releases {
  readonly older: Consumer;
  readonly newer: Consumer;
}

/** Deploys the older release, the newer one, the older one again, and the newer one at last. */
export async function rollBack(
  rollback: Rollback,
  driver: string,
  { url, token = '' }: Address,
  { older, newer }: Releases,
): Promise<void> {
  const goesOn = rollback === 'within a format';
  const deployed = async (
    release: Consumer,
    play: (call: (order: string, tool: string) => Promise<string>) => Promise<void>,
  ): Promise<void> => {
    release.write('package.json', '{ "type": "module" }');
    release.write('shop.ts', SHOP);
    release.write('driver-stores.ts', STORES);
    const command = `node --import tsx shop.ts "${driver}" "${url}" "${token}"`;
    const served = await release.serve(await freePort(), command);
    try {
      // The stores keep runs of other plays too.
      await play((order, tool) => callTool(served.url, `${driver} ${rollback} ${order}`, tool));
    } finally {
      await served.stop();
    }
  };
  await deployed(older, async (call) => {
    assert.equal(await call('before', 'add_item'), 'Done.');
  });
  await deployed(newer, async (call) => {
    assert.equal(await call('before', 'checkout'), 'Done.');
    assert.equal(await call('after', 'add_item'), 'Done.');
  });
  await deployed(older, async (call) => {
    for (const [order, tool] of [
      ['before', 'pay'],
      ['after', 'checkout'],
    ] as const) {
      const text = await call(order, tool);
      if (goesOn) assert.equal(text, 'Done.');
      else assert.match(text, /^\[System: .*(cannot read where|operator)/);
    }
    assert.equal(await call('meanwhile', 'add_item'), 'Done.');
  });
  await deployed(newer, async (call) => {
    // What the older release refused, it has not changed.
    assert.equal(await call('before', goesOn ? 'add_item' : 'pay'), 'Done.');
    assert.equal(await call('after', goesOn ? 'pay' : 'checkout'), 'Done.');
    assert.equal(await call('meanwhile', 'checkout'), 'Done.');
  });
}

/** What a model reads of the call. */
async function callTool(url: URL, order: string, name: string): Promise<string> {
  const headers = { 'mcp-protocol-version': PROTOCOL, 'x-order': order };
  const { status, text, messages } = await send(url, { headers, body: callOf(1, name) });
  const { result, error } = messages.find(({ id }) => id === 1) ?? {};
  const says: unknown = result?.content[0]?.text ?? error?.message;
  assert(typeof says === 'string', `${status} ${text}`);
  return says;
}
