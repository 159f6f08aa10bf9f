import { setTimeout as delay } from 'node:timers/promises';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CALL, type Exchange, type LedgerLine, now } from '../checker/evidence.ts';
import { SWITCH_MS } from '../checker/freezes.ts';
import { type Random, seeded } from '../checker/random.ts';
import { answerOf } from '../checker/reading.ts';
import { Arena, type ArenaOptions } from './arena.ts';
import { describeObserved } from './observed.ts';
import { describeStops, Operator, type Scope } from './operator.ts';
import { playAll } from './play.ts';
import type { PartResult } from './report.ts';
import type { RunLog } from './run-log.ts';

export interface SwitchScale {
  /** How often `freezeAll()` is called. More calls are of operators who die in the middle. */
  readonly throws: number;
  readonly clients: number;
}

/** After so many payments a client goes on with a new run. */
const PAYMENTS_OF_A_RUN = 150;
/** How long each server may take until it has served a call of each scope. */
const PATIENCE_MS = 15_000;
const SCOPES: readonly Scope[] = [
  { workflow: 'till' },
  { workflow: 'till', tool: 'till.pay' },
  { workflow: 'till', tool: 'till.look' },
];

interface Tally {
  /** For each `freezeAll()`, how long after it the last handler of its scope began; at least 0. */
  readonly latest: number[];
  /** For each `unfreezeAll()`, how long after it the last server went on. */
  readonly goesOn: number[];
  /** Steps at work when it was thrown. */
  atWork: number;
  refused: number;
}

/**
 * Clients of the official SDK pay and look up as fast as they can. Operators stop the one, the
 * other or both, and single runs; and some operators die meanwhile.
 */
export function throwSwitches(
  options: ArenaOptions,
  scale: SwitchScale,
  seed: number,
): Promise<PartResult> {
  return Arena.with(options, async (arena) => {
    const tally: Tally = { latest: [], goesOn: [], atWork: 0, refused: 0 };
    const shoppers = Array.from({ length: scale.clients }, (_, index) => {
      return new Shopper(arena, seeded(seed, `switch, client ${index}`), tally);
    });
    const stopped = await Operator.with(arena, async (operator) => {
      const random = seeded(seed, 'switch, the operator');
      const freezing = { play: () => freezeRuns(arena, operator, shoppers, seeded(seed, 'runs')) };
      await playAll(arena, [...shoppers, freezing], async () => {
        await serve(arena, { workflow: 'till' }, now());
        while (tally.latest.length < scale.throws && !arena.isEnding) {
          await delay(random.between(0, 300));
          const scope = random.pick(SCOPES);
          if (tally.latest.length % 5 === 1) {
            await operator.dieInFreezeAll(scope, random);
            await delay(SWITCH_MS);
            await operator.throwSwitch(scope, 'unfreeze');
          }
          const thawed = await throwOnce(arena, operator, scope, random, tally);
          const lateness = await serve(arena, scope, thawed);
          tally.goesOn.push(Math.max(0, ...lateness));
          if (Math.min(...lateness) > SWITCH_MS)
            arena.faults.push(`slow: no call went on in ${SWITCH_MS} ms after unfreezeAll()`);
        }
      });
      return operator.done;
    });
    const faults = await arena.verify();
    faults.push(...(await lostPayments(arena)));
    return {
      did: `${tally.latest.length} freezeAll(), ${options.servers} servers`,
      measured:
        `the last handler began ${spread(tally.latest)} after it; calls went on ` +
        `${spread(tally.goesOn)} after unfreezeAll(), on the last server`,
      details:
        `${arena.ledger.begun.length} handlers in ${arena.logs.length} runs; ${tally.atWork} were ` +
        `at work when it was thrown; ${tally.refused} calls refused; ${describeStops(stopped)}; ` +
        describeObserved(arena.observed),
      faults,
    };
  });
}

/** Stops the scope for a while. Gives when it was let go on. */
async function throwOnce(
  arena: Arena,
  operator: Operator,
  scope: Scope,
  random: Random,
  tally: Tally,
): Promise<number> {
  const { answered, told } = await operator.throwSwitch(scope, 'freeze');
  if (told !== true) arena.faults.push(`switch: freezeAll() of what goes on says "${told}"`);
  await delay(SWITCH_MS + random.between(100, 500));
  const { asked, ...thawed } = await operator.throwSwitch(scope, 'unfreeze');
  if (thawed.told !== true)
    arena.faults.push(`switch: unfreezeAll() of what is stopped says "${thawed.told}"`);
  const { lines } = arena.ledger.refresh();
  const ends = new Map(
    lines.flatMap(({ phase, attempt, at }) => (phase === 'end' ? [[attempt, at]] : [])),
  );
  const begun = lines.filter((line) => line.phase === 'start' && isOf(line, scope));
  const late = begun.filter(({ at }) => answered < at && at < asked);
  tally.latest.push(Math.max(0, ...late.map(({ at }) => at - answered)));
  tally.atWork += begun.filter(
    ({ at, attempt }) => at < answered && answered < (ends.get(attempt) ?? 0),
  ).length;
  return thawed.answered;
}

/**
 * Until each server has begun a handler of each tool in the scope. Gives how long after `since` each
 * of them did.
 */
async function serve(arena: Arena, scope: Scope, since: number): Promise<number[]> {
  const tools = scope.tool === undefined ? ['till.pay', 'till.look'] : [scope.tool];
  const seen = new Map<string, number>();
  const deadline = now() + PATIENCE_MS;
  let read = Math.max(0, arena.ledger.refresh().lines.length - 1_000);
  while (!arena.isEnding) {
    const { lines } = arena.ledger.refresh();
    for (; read < lines.length; read++) {
      const line = lines[read] as LedgerLine;
      const { phase, at, server, tool } = line;
      if (phase !== 'start' || at < since || !isOf(line, scope)) continue;
      const name = `${server} ${tool}`;
      if (!seen.has(name)) seen.set(name, at - since);
    }
    if (seen.size === arena.options.servers * tools.length) break;
    if (now() > deadline) {
      arena.faults.push(
        `stuck: ${PATIENCE_MS} ms after unfreezeAll() only ${[...seen.keys()]} went on`,
      );
      break;
    }
    await delay(10);
  }
  return [...seen.values()];
}

function isOf({ tool }: LedgerLine, scope: Scope): boolean {
  return scope.tool === undefined ? tool.startsWith('till.') : tool === scope.tool;
}

/** Beside all that, single runs are stopped for a moment. */
async function freezeRuns(
  arena: Arena,
  operator: Operator,
  shoppers: readonly Shopper[],
  random: Random,
): Promise<void> {
  while (!arena.isEnding) {
    await delay(random.between(50, 400));
    const { log } = random.pick(shoppers);
    if (log === undefined) continue;
    await operator.freeze(log, 'freeze');
    await delay(random.between(0, 300));
    await operator.freeze(log, 'unfreeze');
  }
}

/** A run's version counts the payments that its handlers made. */
async function lostPayments(arena: Arena): Promise<string[]> {
  const paid = new Map<string, number>();
  for (const { phase, tool, run } of arena.ledger.refresh().lines)
    if (phase === 'end' && tool === 'till.pay') paid.set(run, (paid.get(run) ?? 0) + 1);
  const faults: string[] = [];
  for (const log of arena.logs) {
    await arena.look(log);
    const made = paid.get(log.run) ?? 0;
    if (log.version !== made)
      faults.push(`lost: ${made} payments made, ${log.version} saved (run ${log.run})`);
  }
  return faults;
}

/** A client of the SDK that makes one run after the other. Each request reaches another server. */
class Shopper {
  readonly #arena: Arena;
  readonly #random: Random;
  readonly #tally: Tally;
  /** The run that it plays. */
  log: RunLog | undefined;

  constructor(arena: Arena, random: Random, tally: Tally) {
    this.#arena = arena;
    this.#random = random;
    this.#tally = tally;
  }

  async play(): Promise<void> {
    while (!this.#arena.isEnding) {
      const client = new Client({ name: 'shopper', version: '1.0.0' });
      client.onerror = () => {};
      const transport = new StreamableHTTPClientTransport(new URL('http://a-server/mcp'), {
        fetch: async (_, init) => {
          const [server] = await this.#arena.servers(1, this.#random);
          if (server === undefined) throw new Error('no server is there');
          return fetch(server.endpoint.url, init);
        },
      });
      await client.connect(transport as Parameters<Client['connect']>[0]);
      const run = transport.sessionId ?? '';
      const log = this.#arena.note({ run, era: 'session', headers: {} }, 'till');
      this.log = log;
      let isOver = false;
      const look = async (): Promise<void> => {
        while (!isOver) await this.#call(client, log, 'till.look');
      };
      const pay = async (): Promise<void> => {
        for (let paid = 0; paid < PAYMENTS_OF_A_RUN && !this.#arena.isEnding; )
          if (await this.#call(client, log, 'till.pay')) paid += 1;
        isOver = true;
      };
      await Promise.all([pay(), look()]);
      await client.close();
    }
  }

  /** Whether the handler ran. */
  async #call(client: Client, { run }: RunLog, name: string): Promise<boolean> {
    const { log, faults } = this.#arena;
    const { call, id } = log.nextCall();
    const args = { step: id, ms: this.#random.between(0, 10) };
    const params = { name, arguments: args, _meta: { [CALL]: call } };
    const request = { jsonrpc: '2.0', id, method: 'tools/call', params };
    const exchange: Exchange = { call, run, sent: now(), request, messages: [] };
    log.exchanges.push(exchange);
    try {
      const result = await client.callTool(params);
      exchange.status = 200;
      exchange.messages.push({ at: now(), message: { jsonrpc: '2.0', id, result } });
    } catch (error) {
      faults.push(`wrong answer: ${String(error)} (run ${run})`);
      exchange.broke = true;
    }
    exchange.ended = now();
    const { told } = answerOf(exchange);
    if (told.kind === 'done') return true;
    if (told.kind === 'refused' && told.reason === 'frozen') this.#tally.refused += 1;
    else faults.push(`wrong answer: ${JSON.stringify(told)} (run ${run})`);
    // A client that is refused leaves some time to the others.
    await delay(5);
    return false;
  }
}

/** Median, 99th percentile and maximum, in milliseconds. */
function spread(numbers: readonly number[]): string {
  const sorted = [...numbers].sort((a, b) => a - b);
  const at = (share: number): number =>
    Math.round(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0);
  return `${at(0.5)} ms (median), ${at(0.99)} (p99), ${at(1)} at most`;
}
