import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { Consumer, ROOT } from './consumer.ts';

/** The example as its own project outside of the repository, with its source and its output. */
export interface VercelProject {
  readonly folder: string;
  /** The compiled `function-instance.ts`. */
  readonly launcher: string;
  /** The address of a compiled module: `built('api/mcp')`. */
  built(module: string): string;
  remove(): void;
}

const EXAMPLE = join(ROOT, 'examples/vercel');
const OPTIONS = [
  '--module',
  'nodenext',
  '--target',
  'es2023',
  '--outDir',
  'built',
  '--rootDir',
  '.',
];

export async function makeVercelProject(): Promise<VercelProject> {
  const project = new Consumer();
  project.write('package.json', '{ "name": "project", "private": true, "type": "module" }');
  await project.install();
  project.link('@modelcontextprotocol/sdk', '@upstash/redis', 'express', 'zod');
  const files = readdirSync(EXAMPLE, { recursive: true, encoding: 'utf8' }).filter(
    (file) => file.endsWith('.ts') && statSync(join(EXAMPLE, file)).isFile(),
  );
  for (const file of files) project.write(file, readFileSync(join(EXAMPLE, file), 'utf8'));
  const launcher = 'function-instance.ts';
  project.write(launcher, readFileSync(join(ROOT, 'test/helpers', launcher), 'utf8'));
  // The repository's own check has looked at the types.
  const compile = [
    ...OPTIONS,
    '--noCheck',
    '--rewriteRelativeImportExtensions',
    ...files,
    launcher,
  ];
  await project.node(join(ROOT, 'node_modules/typescript/bin/tsc'), ...compile);
  const built = (module: string) => join(project.folder, 'built', `${module}.js`);
  return {
    folder: project.folder,
    launcher: built('function-instance'),
    built: (module) => pathToFileURL(built(module)).href,
    remove: () => project.remove(),
  };
}
