/** Node in several versions, as npm packages of it in a temporary folder. */
import { join } from 'node:path';
import { Consumer } from '../../test/helpers/consumer.ts';

/** The oldest that is supported, those under long-term support, and the newest. */
const MAJORS = [20, 22, 24, 26];

export interface NodeBinary {
  /** `Node 22.1.0`. */
  readonly name: string;
  readonly path: string;
}

/** The folder is added to `projects`, for the caller to remove. */
export async function fetchNodes(
  projects: Consumer[],
): Promise<{ nodes: readonly NodeBinary[]; missing: readonly string[] }> {
  const folder = new Consumer();
  projects.push(folder);
  const nodes: NodeBinary[] = [];
  const missing: string[] = [];
  for (const major of MAJORS) {
    const named = `node${major}@npm:node-${process.platform}-${process.arch}@${major}`;
    try {
      await folder.run('npm', 'install', '--no-audit', '--no-fund', '--ignore-scripts', named);
      const path = join(folder.folder, `node_modules/node${major}/bin/node`);
      const version = (await folder.run(path, '--version')).trim();
      nodes.push({ name: `Node ${version.slice(1)}`, path });
    } catch (error) {
      if (!/ETARGET|E404/.test(String(error))) throw error;
      missing.push(`Node ${major}`);
    }
  }
  return { nodes, missing };
}
