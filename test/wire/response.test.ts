import { describe, expect, it } from 'vitest';
import type { Filter } from '../../src/wire/filter.ts';
import { WAYS, type Way } from './ways-of-writing.ts';
import {
  type Answer,
  ask,
  HOSTS,
  type Host,
  header,
  LIST,
  ONLOOKER,
  serve,
} from './wire-server.ts';

const BYSTANDER: Filter = { stage: 'sync', wants: () => false };
const SLOW_ONLOOKER: Filter = {
  stage: 'sync',
  wants: () => true,
  onHead: () => new Promise(setImmediate),
  onMessage: () => new Promise(setImmediate),
  onEnd: () => new Promise((resolve) => setImmediate(resolve, [])),
};

const FILTERS: [string, Filter[]][] = [
  ['no filter', []],
  ['a filter that wants nothing', [BYSTANDER]],
  ['a filter that sees everything', [ONLOOKER]],
  ['a slow filter that sees everything', [SLOW_ONLOOKER, ONLOOKER]],
];

function asking(way: Way) {
  if (way.ask === 'GET' || way.ask === 'HEAD') return { method: way.ask };
  return { body: way.ask === 'notification' ? '{"jsonrpc":"2.0","method":"x"}' : LIST };
}

/**
 * A response without the order of its headers, which Node changes with the way of setting them, and
 * without the framing of a stream.
 */
function sameAs(answer: Answer): unknown {
  const isStream = header(answer, 'content-type') === 'text/event-stream';
  const headers = answer.headers
    .map(([name, value]) => `${name.toLowerCase()}: ${value}`)
    .filter((line) => !isStream || !/^(content-length|transfer-encoding)/.test(line))
    .sort();
  return { ...answer, headers, body: answer.body.toString('latin1') };
}

describe.each(HOSTS)('a response that no filter changes, on %s', (host: Host) => {
  const ways = WAYS.filter(({ needsExpress }) => host !== 'node' || needsExpress !== true);

  it.each(ways)('arrives as from the bare upstream: $name', async (way) => {
    const bare = sameAs(
      await ask((await serve(way.write, { wired: false, host })).url, asking(way)),
    );
    for (const [, filters] of FILTERS) {
      const { url, errors } = await serve(way.write, { host, filters: () => filters });
      expect(sameAs(await ask(url, asking(way)))).toEqual(bare);
      expect(errors).toEqual([]);
    }
  });
});
