import { createHook } from 'node:async_hooks';
import { readFileSync } from 'node:fs';
import type { Profiler } from 'node:inspector';
import { Session } from 'node:inspector/promises';
import { SourceMap } from 'node:module';
import { fileURLToPath } from 'node:url';
import type { Traced } from './server-process.ts';

const DIST = new URL('../dist/', import.meta.url).href;

/** Counts what requests set going in this process: promises, and files of ours that they enter. */
export class Counting {
  readonly #session = new Session();
  readonly #hook = createHook({
    init: (_id, type) => {
      if (type === 'PROMISE') this.#promises++;
    },
  });
  #promises = 0;

  async begin(): Promise<void> {
    this.#session.connect();
    await this.#session.post('Profiler.enable');
    await this.#session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
    // What ran until now does not count.
    await this.#session.post('Profiler.takePreciseCoverage');
    this.#promises = 0;
    this.#hook.enable();
  }

  /** The promises, and the files of ours in which a function ran. */
  async end(): Promise<Traced> {
    this.#hook.disable();
    const { result } = await this.#session.post('Profiler.takePreciseCoverage');
    const files = result.filter(({ url }) => url.startsWith(DIST)).flatMap(sourcesEntered);
    return { promises: this.#promises, files: new Set(files).size };
  }
}

/** The files of `src/` that a built module's called functions came from, by the module's map. */
function sourcesEntered({ url, functions }: Profiler.ScriptCoverage): string[] {
  const called = functions.filter(({ ranges }) => (ranges[0]?.count ?? 0) > 0);
  if (called.length === 0) return [];
  const path = fileURLToPath(url);
  const map = new SourceMap(JSON.parse(readFileSync(`${path}.map`, 'utf8')));
  const text = readFileSync(path, 'utf8');
  return called.flatMap(({ ranges }) => {
    const before = text.slice(0, ranges[0]?.startOffset).split('\n');
    const entry = map.findEntry(before.length - 1, before.at(-1)?.length ?? 0);
    const isOurs = 'originalSource' in entry && entry.originalSource.includes('/src/');
    return isOurs ? [entry.originalSource] : [];
  });
}
