/** The files of recorded calls. Hides that they are read as streams, since they may be long. */
import { createReadStream, existsSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { UsageError } from './command-line.ts';

/** @throws UsageError where none is named, or one is not there */
export function assertFiles(paths: readonly string[]): void {
  if (paths.length === 0) throw new UsageError('--calls is needed: a file of recorded calls');
  for (const each of paths)
    if (!existsSync(each)) throw new UsageError(`--calls: there is no file ${each}`);
}

/** @param read called with the characters of each line */
export async function* linesOf(
  paths: readonly string[],
  read: (bytes: number) => void = () => {},
): AsyncGenerator<string> {
  for (const path of paths)
    for await (const line of createInterface({ input: createReadStream(path) })) {
      read(line.length + 1);
      if (line !== '') yield line;
    }
}
