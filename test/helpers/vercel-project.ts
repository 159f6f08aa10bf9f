import { readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { sharedTarball } from '../services/shared.ts';
import { Consumer, ROOT } from './consumer.ts';
import { compiled } from './program.ts';

/** The example as its own project outside of the repository, with its source and its output. */
export interface VercelProject {
  readonly folder: string;
  /** The path of a program that serves one request by an entry: `program('api/mcp')`. */
  program(entry: string): Promise<string>;
  remove(): void;
}

const EXAMPLE = join(ROOT, 'examples/vercel');
const INSTANCE = 'function-instance.ts';

export async function makeVercelProject(): Promise<VercelProject> {
  const project = new Consumer();
  project.write('package.json', '{ "name": "project", "private": true, "type": "module" }');
  await project.installTarballs(await sharedTarball());
  project.link('@modelcontextprotocol/sdk', '@upstash/redis', 'express', 'zod');
  const files = readdirSync(EXAMPLE, { recursive: true, encoding: 'utf8' }).filter(
    (file) => file.endsWith('.ts') && statSync(join(EXAMPLE, file)).isFile(),
  );
  for (const file of files) project.write(file, readFileSync(join(EXAMPLE, file), 'utf8'));
  project.write(INSTANCE, readFileSync(join(ROOT, 'test/helpers', INSTANCE), 'utf8'));
  return {
    folder: project.folder,
    program(entry) {
      const start = `start-${basename(entry)}.ts`;
      project.write(
        start,
        `import handler from './${entry}.ts';
         import { serveOnce } from './${INSTANCE}';
         serveOnce(handler);`,
      );
      return compiled(join(project.folder, start), join(project.folder, 'built'));
    },
    remove: () => project.remove(),
  };
}
