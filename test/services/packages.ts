/** What is packed and installed once for all test files of a run: npm takes long for each. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Consumer, ROOT } from '../helpers/consumer.ts';
import type { Service } from './server-process.ts';

/** What a run makes once. Its address may be a path. */
export type Made = Pick<Service, 'url' | 'stop'>;

/** A folder of the repository as a tarball. */
export async function startTarball(folder: string): Promise<Made> {
  const consumer = new Consumer();
  return { url: await consumer.pack(folder), stop: async () => consumer.remove() };
}

/** A project with the tarballs, and the packages that the command needs. */
export async function startInstall(...tarballs: readonly Promise<Made>[]): Promise<Made> {
  const consumer = new Consumer();
  const manifest = readFileSync(join(ROOT, 'packages/cli/package.json'), 'utf8');
  const { dependencies } = JSON.parse(manifest) as { dependencies: Record<string, string> };
  consumer.link(...Object.keys(dependencies).filter((name) => !name.startsWith('mcp-interlock')));
  await consumer.installTarballs(...(await Promise.all(tarballs)).map(({ url }) => url));
  return { url: consumer.folder, stop: async () => consumer.remove() };
}
