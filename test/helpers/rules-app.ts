import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { expect } from 'vitest';
import * as z from 'zod';
import { claimed, claimOf, commitOf, HOUR } from '../../packages/testing/src/fixtures.ts';
import type { Refusal, StateMachineGate, StepSource } from '../../src/index.ts';
import type { AtomicStateStore } from '../../src/stores/store.ts';
import { readerOf } from '../../src/workflow/condition.ts';
import { bareCall } from '../../src/workflow/facts.ts';
import { plainStore } from './operations.ts';
import { RawSession, type WireMessage } from './raw.ts';
import { begins, type HeldCall, type Scene, type SceneOptions, scene } from './scene.ts';
import type { Ledger } from './upstream.ts';

type Args = Readonly<Record<string, unknown>>;

/** Gives the members of a tool's result that are not what it usually answers. */
type Answer = (args: Args, extra: StepSource) => unknown;

export interface RulesAppOptions extends Omit<SceneOptions, 'workflow' | 'makeServer'> {
  /** Tools that no rule names. */
  readonly tools?: readonly string[];
  /** What tools answer. A tool usually succeeds, and answers with its own arguments. */
  readonly answers?: Readonly<Record<string, Answer>>;
}

/** An app behind a gate of rules or limits, whose tools answer with their own arguments. */
export interface RulesApp extends Scene {
  /** A new session, and so a run of its own. */
  begin(headers?: Record<string, string>): Promise<Caller>;
  /** A session of another process of the same app. */
  resume(run: string): Caller;
  /** How often the tool's handler ran. */
  ran(tool: string): number;
}

export async function rulesApp<S extends string, E extends string>(
  gate: StateMachineGate<S, E>,
  { tools = [], answers = {}, ...options }: RulesAppOptions = {},
): Promise<RulesApp> {
  const { toolNames, order } = gate.compile();
  const names = new Set([...toolNames, ...(order?.names ?? []), ...tools]);
  const app = await scene({
    shape: { answers: 'json' },
    ...options,
    workflow: gate as unknown as StateMachineGate<string, string>,
    makeServer: answering(names, answers),
  });
  return {
    ...app,
    begin: async (headers) => new Caller(app, await app.session(headers)),
    resume: (run) => new Caller(app, RawSession.resume(app.url, run)),
    ran: (tool) => app.ledger.calls.filter((each) => each === tool).length,
  };
}

/** With the argument `fail` a call fails. */
function answering(names: ReadonlySet<string>, answers: Readonly<Record<string, Answer>>) {
  return (ledger: Ledger): McpServer => {
    const server = new McpServer({ name: 'tools', version: '1.0.0' });
    for (const name of names)
      server.registerTool(name, { inputSchema: z.looseObject({}) }, async (args, extra) => {
        ledger.calls.push(name);
        await ledger.gates.get(name);
        const usual = {
          content: [{ type: 'text' as const, text: `${name} done` }],
          structuredContent: args,
          isError: args.fail === true,
        };
        return { ...usual, ...(answers[name]?.(args, extra) as object) };
      });
    return server;
  };
}

/** A session in the words of a test. */
export class Caller {
  readonly session: RawSession;
  readonly #app: Scene;

  constructor(app: Scene, session: RawSession) {
    this.#app = app;
    this.session = session;
  }

  /** The key of its run. */
  get run(): string {
    return this.session.id;
  }

  call(tool: string, args: Args = {}): Promise<WireMessage> {
    return this.session.call(tool, args);
  }

  /** The call reaches its handler, and succeeds. */
  async may(tool: string, args: Args = {}): Promise<WireMessage> {
    const answer = await this.call(tool, args);
    const { result } = answer;
    const said = JSON.stringify(answer);
    expect(result?.isError, `${tool} was to succeed: ${said}`).not.toBe(true);
    expect(answer.error, `${tool} was to succeed: ${said}`).toBeUndefined();
    return result;
  }

  /** The tool runs, and fails. */
  async fails(tool: string, args: Args = {}): Promise<void> {
    const before = this.#app.ledger.calls.length;
    const { result } = await this.call(tool, { fail: true, ...args });
    expect(result?.isError).toBe(true);
    expect(this.#app.ledger.calls.slice(before)).toContain(tool);
  }

  /** The gate refuses the call for that reason, and no handler runs. */
  async mayNot(tool: string, reason: string, args: Args = {}): Promise<Refused> {
    const before = this.#app.ledger.calls.length;
    const answer = await this.call(tool, args);
    const refused = refusalOf(answer);
    expect(refused.reason, `${tool} was to be refused: ${JSON.stringify(answer)}`).toBe(reason);
    expect(this.#app.ledger.calls.slice(before)).not.toContain(tool);
    return refused;
  }

  begins(tool: string, args: Args = {}): Promise<HeldCall<WireMessage>> {
    return begins(this.#app, tool, () => this.call(tool, args));
  }

  tools(): Promise<string[]> {
    return this.session.tools();
  }

  /** The tools that made moves, oldest first. */
  async moves(): Promise<(string | null)[]> {
    return this.#app.run(this.run).moves();
  }
}

/** A refusal as programs read it, and in words. */
export interface Refused extends Partial<Refusal> {
  readonly text: string;
}

export function refusalOf({ result }: WireMessage): Refused {
  const text = String(result?.content?.[0]?.text);
  return { ...result?._meta?.['mcp-interlock/refusal'], text };
}

/** Longer than any window of these tests. */
const LONG_LIFE = 100 * HOUR;

/** Lets a run have so many facts of a tool, as if it had called it. */
export async function remember<S extends string, E extends string>(
  app: Scene,
  gate: StateMachineGate<S, E>,
  run: string,
  tool: string,
  count: number,
  argsOf: (index: number) => Args,
): Promise<void> {
  const workflow = gate.compile();
  const { ledger } = workflow.rules;
  if (ledger === undefined) throw new Error('no rule asks for calls');
  const now = app.clock.now();
  let facts = ledger.read(workflow.start);
  for (let i = 0; i < count; i++) {
    const noted = ledger.note(tool, 'args', readerOf(argsOf(i)), run);
    facts = ledger.decided(facts, { ...bareCall(tool, now), noted }, []);
  }
  const position = ledger.write(workflow.start, facts, now);
  const request = claimOf(run, { workflow: workflow.id, ttlMs: LONG_LIFE });
  await claimed(app.data, request);
  await app.data.commit(commitOf(request, { snapshot: position, ttlMs: LONG_LIFE }));
}

/** A store whose answers say another time, as after a failover to a backend whose clock is behind. */
export function timedBy(store: AtomicStateStore, now: () => number): AtomicStateStore {
  return {
    ...plainStore(store),
    async read(...args) {
      const record = await store.read(...args);
      return record && { ...record, now: now() };
    },
    async claim(request) {
      const claimed = await store.claim(request);
      return claimed.status === 'unknown' ? claimed : { ...claimed, now: now() };
    },
  };
}
