import { createHook } from 'node:async_hooks';
import { readFileSync } from 'node:fs';
import type { Profiler } from 'node:inspector';
import { Session } from 'node:inspector/promises';
import { fileURLToPath } from 'node:url';
import type { Traced } from './server-process.ts';
import { isBuilt, sourceOf } from './sources.ts';

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
    const files = result.filter(({ url }) => isBuilt(url)).flatMap(sourcesEntered);
    return { promises: this.#promises, files: new Set(files).size };
  }
}

/** The files of `src/` that a built module's called functions came from, by the module's map. */
function sourcesEntered({ url, functions }: Profiler.ScriptCoverage): string[] {
  const called = functions.filter(({ ranges }) => (ranges[0]?.count ?? 0) > 0);
  if (called.length === 0) return [];
  const text = readFileSync(fileURLToPath(url), 'utf8');
  return called.flatMap(({ ranges }) => {
    const before = text.slice(0, ranges[0]?.startOffset).split('\n');
    const source = sourceOf(url, before.length - 1, before.at(-1)?.length ?? 0);
    return source === undefined ? [] : [source.file];
  });
}
