import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { type ClientRequest, request } from 'node:http';
import { fileURLToPath } from 'node:url';
import { measureBody, TELLING_BODIES } from './bodies.ts';
import { Caller, quantile } from './load.ts';
import type { Measurement, Row, Rows } from './report.ts';
import { cpuOfRequest, ServerProcess, type StartOptions } from './server-process.ts';
import {
  BESIDE_STREAMS,
  DECIDED,
  GROWING_WORKFLOWS,
  KIND,
  largeAnswer,
  type Setup,
  type Workload,
} from './setups.ts';

export interface ScaleOptions extends StartOptions {
  readonly rounds: number;
  readonly turnMs: number;
  readonly isChosen: (row: { readonly name: string }) => boolean;
}

const VARIANTS = ['bare', 'gated'] as const;
/** The largest message that a middleware holds to look into it, less what is around the text. */
const LARGE = 16 * 2 ** 20 - 1024;
const STREAMS = [1, 100, 1_000, 10_000] as const;

/** How what a request costs, or what is kept, grows with what there is of something. */
export function scales(options: ScaleOptions): Measurement[] {
  const workflows = GROWING_WORKFLOWS.flatMap(({ thing, name, counts }) =>
    DECIDED.map((decided): Measurement => {
      const row = `${decided.name}, ${name}`;
      const workload = { ...KIND, ...decided };
      return {
        name: row,
        measure: async () => ({ [row]: await measureGrowth(workload, thing, counts, options) }),
      };
    }),
  );
  const answers = (['json', 'sse'] as const).map((kind): Measurement => {
    const workload = largeAnswer(kind, LARGE);
    const { name } = workload;
    return { name, measure: async () => ({ [name]: await measureLarge(workload, options) }) };
  });
  return [
    ...workflows,
    { name: 'memory', measure: () => ({ 'memory of a run, bytes': measureMemory(options) }) },
    ...answers,
    { name: 'streams', measure: () => measureStreams(options) },
    ...TELLING_BODIES.map((name) => ({ name, measure: () => measureBody(name) })),
  ].filter(options.isChosen);
}

/** Microseconds of CPU for a request at each count, and the last as a multiple of the first. */
async function measureGrowth(
  workload: Workload,
  thing: 'bound' | 'states',
  counts: readonly number[],
  options: ScaleOptions,
): Promise<Row> {
  const servers: ServerProcess[] = [];
  try {
    for (const count of counts)
      servers.push(await ServerProcess.start('gated', { ...workload, [thing]: count }, options));
    const times = await takeTurns(servers, options);
    const row = counts.map((count, at) => [`${count} µs`, Math.round(times[at] ?? 0)]);
    const growth = (times.at(-1) ?? 0) / (times[0] ?? 1);
    return { ...Object.fromEntries(row), growth: Number(growth.toFixed(2)) };
  } finally {
    for (const server of servers) await server.stop();
  }
}

/** The median of each one's CPU time for a request, one after the other in each round. */
async function takeTurns(
  servers: readonly ServerProcess[],
  { rounds, turnMs }: ScaleOptions,
): Promise<number[]> {
  for (const server of servers) await server.turn(turnMs);
  const times = servers.map((): number[] => []);
  for (let round = 0; round < rounds; round++)
    for (const [at, server] of servers.entries())
      times[at]?.push(cpuOfRequest([await server.turn(turnMs)]));
  return times.map((each) => quantile(each, 0.5));
}

async function measureLarge(workload: Workload, options: ScaleOptions): Promise<Row> {
  const few = { ...options, connections: 1 };
  const servers: ServerProcess[] = [];
  try {
    for (const variant of VARIANTS) servers.push(await ServerProcess.start(variant, workload, few));
    const [bare = 0, gated = 1] = await takeTurns(servers, options);
    const ratio = Number((bare / gated).toFixed(2));
    return { ratio, 'bare µs': Math.round(bare), 'gated µs': Math.round(gated) };
  } finally {
    for (const server of servers) await server.stop();
  }
}

function measureMemory({ node = process.execPath }: ScaleOptions): Row {
  const file = fileURLToPath(new URL('memory.ts', import.meta.url));
  const text = execFileSync(node, ['--expose-gc', '--import', 'tsx', file], { encoding: 'utf8' });
  return JSON.parse(text) as Row;
}

/** A step beside open GET streams, each of a session of its own, and the bytes of a session. */
async function measureStreams(options: ScaleOptions): Promise<Rows> {
  const rows = STREAMS.map((): Record<string, number> => ({}));
  for (const variant of VARIANTS) {
    for (const [at, row] of (await besideStreams(variant, options)).entries())
      for (const [key, value] of Object.entries(row))
        Object.assign(rows[at] ?? {}, { [`${variant} ${key}`]: value });
  }
  return Object.fromEntries(
    STREAMS.map((count, at) => [`step beside ${count} open GET streams`, rows[at] ?? {}]),
  );
}

async function besideStreams(variant: Setup['variant'], options: ScaleOptions): Promise<Row[]> {
  const nodeArguments = [...(options.nodeArguments ?? []), '--expose-gc'];
  const server = await ServerProcess.start(variant, BESIDE_STREAMS, { ...options, nodeArguments });
  const open: OpenStream[] = [];
  const rows: Row[] = [];
  try {
    const empty = await server.ask('memory');
    for (const count of STREAMS) {
      while (open.length < count) open.push(await OpenStream.to(server.port));
      const kept = (await server.ask('memory')) - empty;
      const [cpu = 0] = await takeTurns([server], options);
      // What a process keeps differs by more than one stream from one look to the next.
      const each = count < 100 ? {} : { 'bytes each': Math.round(kept / count) };
      rows.push({ µs: Math.round(cpu), ...each });
    }
  } finally {
    for (const stream of open) stream.close();
    await server.stop();
  }
  return rows;
}

/** A client that listens on the GET stream of its own session. */
class OpenStream {
  readonly #request: ClientRequest;

  private constructor(request: ClientRequest) {
    this.#request = request;
  }

  static async to(port: number): Promise<OpenStream> {
    const caller = new Caller(port, { sdk: 'v1', requests: [] });
    await caller.open();
    caller.close();
    const headers = { ...caller.headers, accept: 'text/event-stream' };
    const sent = request({ host: '127.0.0.1', port, path: '/mcp', agent: false, headers });
    sent.end();
    const [response] = await once(sent, 'response');
    if (response.statusCode !== 200) throw new Error(`a GET was answered ${response.statusCode}`);
    response.resume();
    response.on('error', () => {});
    sent.on('error', () => {});
    return new OpenStream(sent);
  }

  close(): void {
    this.#request.destroy();
  }
}
