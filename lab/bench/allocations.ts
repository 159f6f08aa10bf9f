import type { HeapProfiler } from 'node:inspector';
import { Session } from 'node:inspector/promises';
import type { Allocated } from './server-process.ts';
import { isBuilt, sourceOf } from './sources.ts';

type Node = HeapProfiler.SamplingHeapProfileNode;

/**
 * Adds up what this process allocates, garbage included. The profiler looks at one in so many
 * bytes, and scales what it saw up to all of them. So few bytes make the sum of some thousand
 * requests repeat within 3 %.
 */
export class Allocations {
  readonly #session = new Session();

  async begin(): Promise<void> {
    this.#session.connect();
    await this.#session.post('HeapProfiler.startSampling', {
      samplingInterval: 1_024,
      includeObjectsCollectedByMajorGC: true,
      includeObjectsCollectedByMinorGC: true,
    });
  }

  async end(): Promise<Allocated> {
    const { profile } = await this.#session.post('HeapProfiler.stopSampling');
    this.#session.disconnect();
    const functions: Record<string, number> = {};
    const bytes = addUp(profile.head, undefined, functions);
    return { bytes, functions };
  }
}

/**
 * The bytes of a node and of all below it. What Node itself allocates counts for the function of
 * ours that called it, without any other package's between them.
 */
function addUp(
  { callFrame, selfSize, children }: Node,
  caller: string | undefined,
  functions: Record<string, number>,
): number {
  const isNode = callFrame.url === '' || callFrame.url.startsWith('node:');
  const ours = isNode ? caller : nameOf(callFrame);
  if (ours !== undefined) functions[ours] = (functions[ours] ?? 0) + selfSize;
  let bytes = selfSize;
  for (const child of children) bytes += addUp(child, ours, functions);
  return bytes;
}

/** `src/step/step.ts:120 claim` for a function of ours. */
function nameOf({
  url,
  lineNumber,
  columnNumber,
  functionName,
}: Node['callFrame']): string | undefined {
  const at = isBuilt(url) ? sourceOf(url, lineNumber, columnNumber) : undefined;
  return at && `${at.file}:${at.line + 1} ${functionName}`.trimEnd();
}
