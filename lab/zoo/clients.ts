/**
 * Scripted clients, each with one habit that real ones were seen to have. Hides how a client keeps
 * its session and its list, and how its model reads what it is told.
 */
import { setTimeout as delay } from 'node:timers/promises';
import {
  type RawRequest,
  type RawResponse,
  send,
  sendAndHold,
  type WireMessage,
} from '../../test/helpers/raw.ts';
import { STATELESS, stateless } from '../../test/helpers/two-eras.ts';

export type Era = '2025-11-25' | '2026-07-28';

/** What clients call themselves whose name is in no list of clients. */
export const UNKNOWN_NAME = 'zoo';

/** What a client does otherwise than the specification supposes. */
export interface Habit {
  /** As in the table of docs/start/clients.md. */
  readonly name: string;
  /** The name that it sends. Default: one that is in no list of clients. */
  readonly clientInfo?: string;
  /** Whether it sends a token. */
  readonly token?: true;
  /** Whether it says `_meta["openai/session"]`. */
  readonly conversation?: true;
  /** What a session is for: all that it does, one call, or one turn, after which it says DELETE. */
  readonly session?: 'call' | 'turn';
  /** When it lists the tools. Default: at the beginning, and when it is told that they changed. */
  readonly lists?: 'once' | 'before each call';
  /** Whether its model calls tools that a result names and that the client did not list. */
  readonly callsWhatItReads?: true;
  /** Whether it asks `server/discover` first. */
  readonly discovers?: true;
  /** Whether its model emits two dependent calls in one turn. */
  readonly twoAtOnce?: true;
  /** What its model does with a refusal. Default: it follows the words. */
  readonly onRefusal?: 'repeats' | 'goes on';
  /** The tool with which its model begins, whatever comes first. Default: the first of the plan. */
  readonly beginsWith?: Step;
  /** Whether it hangs up in the middle of its second step, and asks again. */
  readonly hangsUp?: true;
  /** What it does where the server has forgotten its session after the first step. */
  readonly onLostSession?: 'begins anew' | 'gives up';
  /**
   * What its user does where it is stuck. Default: asks again. `reopens`: closes it, so that it
   * says DELETE as clients of Python's SDK do, and begins again.
   */
  readonly onStuck?: 'reopens';
}

/** The way through the checkout that the user asks for. */
export const PLAN = ['cart_add_item', 'cart_checkout', 'cart_pay'] as const;
export type Step = (typeof PLAN)[number];

/** How a play ended. */
export interface Outcome {
  readonly paid: boolean;
  /** How many calls it made, in all tries. */
  readonly calls: number;
  /** Where it did not pay: why it stopped at last, and the last that its model read. */
  readonly stuck?: string;
  /** In which try of the user it paid, or its operator was told. */
  readonly tries: number;
}

/** The shop behind the gate: what a play must know of it, and no client does. */
export interface Shop {
  /** Whether the handler of `cart_pay` has run. */
  readonly paid: boolean;
  /**
   * Lets no handler of that tool end before `release()`. `begun` resolves once one runs, and
   * `aborted` once it hears that its client has left.
   */
  hold(tool: Step): {
    readonly begun: Promise<void>;
    readonly aborted: Promise<void>;
    release(): void;
  };
}

export interface Play {
  /** Where each request goes, in turn. */
  readonly urls: readonly URL[];
  readonly shop: Shop;
  readonly era: Era;
  /** What a token is in a request's headers. */
  readonly token: Readonly<Record<string, string>>;
  /** Whether the operator was told what serves this client. */
  isTold(): Promise<boolean>;
}

/** How often the user tries, while the client is stuck and nothing is told to the operator. */
const MOST_TRIES = 8;
/** A user takes a moment, and more than a client whose calls go out side by side. */
const MOMENT_MS = 300;
/** More than any honest way needs: a model that is still not there goes round in circles. */
const MOST_CALLS = 12;
/** How often a model reads the same refusal before it gives up. */
const MOST_PATIENCE = 2;
/** Long enough for a call that is refused at once to be answered. A call that waits has no answer. */
const SECOND_CALL_MS = 400;
/** Long enough for a handler to hear that its client left. Behind a proxy it hears nothing. */
const CANCEL_MS = 400;

interface Answer {
  readonly text: string;
  readonly isError: boolean;
  readonly result: WireMessage | undefined;
}

/** One client, and its model, on the way to `cart_pay`. */
export class Client {
  readonly #habit: Habit;
  readonly #play: Play;
  /** The tools that the model knows: by their name, what their schemas require and return. */
  #tools = new Map<string, { readonly requires: readonly string[]; readonly returns: string[] }>();
  /** The tools that the last result named. */
  #named = new Set<string>();
  /** Arguments that a tool handed out. */
  readonly #handed = new Map<string, string>();
  #session: string | undefined;
  #toldOfChange = false;
  #sent = 0;
  #requests = 0;
  #calls = 0;
  #callsBefore = 0;
  /** Where in the plan the model believes to be. */
  #at = 0;
  readonly #refusals = new Map<string, number>();
  #read = '';

  constructor(habit: Habit, play: Play) {
    this.#habit = habit;
    this.#play = play;
  }

  /** Plays to the end. Two instances get its requests in turn. */
  async run(): Promise<Outcome> {
    const { shop, isTold } = this.#play;
    await this.#connect();
    await this.#list();
    for (let tries = 1; ; tries++) {
      const stuck = (await this.#toPay()) ?? this.#stuck('it believes that it paid');
      const { paid } = shop;
      const calls = this.#calls;
      if (paid) return { paid, calls, tries };
      if (tries === MOST_TRIES || (await isTold())) return { paid, calls, stuck, tries };
      await this.#askAgain();
    }
  }

  /** The user begins again, with what the client still has. */
  async #askAgain(): Promise<void> {
    await delay(MOMENT_MS);
    this.#at = 0;
    this.#callsBefore = this.#calls;
    this.#refusals.clear();
    if (this.#habit.onStuck !== 'reopens') return;
    await this.#endSession();
    await this.#list();
  }

  /** Resolves once the plan is done, or to why the client is stuck before. */
  async #toPay(): Promise<string | undefined> {
    const { beginsWith, lists, onLostSession } = this.#habit;
    if (beginsWith !== undefined && this.#knows(beginsWith)) this.#at = PLAN.indexOf(beginsWith);
    while (this.#at < PLAN.length) {
      if (this.#calls - this.#callsBefore >= MOST_CALLS)
        return this.#stuck('it goes round in circles');
      if (onLostSession !== undefined && this.#calls === 1) await this.#forgetSession();
      if (lists === 'before each call') await this.#list();
      // A model leaves out a step that its list no longer has.
      const ahead = PLAN.findIndex((step, index) => index >= this.#at && this.#knows(step));
      if (ahead < 0) return this.#stuck(`${PLAN[this.#at]} is not in its list`);
      this.#at = ahead;
      const step = PLAN[ahead] as Step;
      const missing = this.#tools.get(step)?.requires.find((name) => !this.#handed.has(name));
      if (missing !== undefined && !(await this.#askFor(missing)))
        return this.#stuck(`no tool returns ${missing}`);

      const answers = await this.#turn(step, PLAN[ahead + 1]);
      const stuck = this.#take(answers);
      if (stuck !== undefined) return stuck;
      const heardOfChange = this.#toldOfChange && answers.length > 0;
      if (lists === undefined && heardOfChange) await this.#list();
    }
    return undefined;
  }

  /** The model reads the answers of a turn, and decides where in its plan it is. */
  #take(answers: readonly (Answer | 'lost')[]): string | undefined {
    const { onRefusal } = this.#habit;
    for (const answer of answers) {
      if (answer === 'lost') return this.#stuck('its session is gone');
      this.#read = answer.text;
      this.#named = new Set([...answer.text.matchAll(/\bcart_\w+/g)].map(([name]) => name));
      if (!answer.isError || onRefusal === 'goes on') {
        this.#at += 1;
        continue;
      }
      const times = (this.#refusals.get(answer.text) ?? 0) + 1;
      this.#refusals.set(answer.text, times);
      if (onRefusal === 'repeats' && times < MOST_PATIENCE) return undefined;
      if (times > MOST_PATIENCE) return this.#stuck('it reads the same again');
      const said = adviceOf(answer.text);
      if (said === undefined) return this.#stuck('nothing says what to call');
      this.#at = PLAN.indexOf(said);
      return undefined;
    }
    return undefined;
  }

  #stuck(why: string): string {
    return this.#read === '' ? why : `${why}: ${this.#read}`;
  }

  #knows(tool: string): boolean {
    return (
      this.#tools.has(tool) || (this.#habit.callsWhatItReads === true && this.#named.has(tool))
    );
  }

  /** Calls the tool whose schema says that it returns this argument. */
  async #askFor(argument: string): Promise<boolean> {
    const [tool] = [...this.#tools].find(([, { returns }]) => returns.includes(argument)) ?? [];
    if (tool === undefined) return false;
    const [answer] = await this.#inSessions(async () => [await this.#call(tool)]);
    if (answer === undefined || answer === 'lost') return false;
    const value = answer.result?.structuredContent?.[argument] as unknown;
    if (typeof value !== 'string') return false;
    this.#handed.set(argument, value);
    return true;
  }

  /** Calls the step, and where the model emits two calls in one turn, the next one with it. */
  async #turn(step: Step, next: Step | undefined): Promise<readonly (Answer | 'lost')[]> {
    const { twoAtOnce, hangsUp } = this.#habit;
    if (hangsUp && step === 'cart_checkout' && this.#calls === 1) {
      await this.#callAndHangUp(step);
      return [];
    }
    return this.#inSessions(async () =>
      twoAtOnce && next !== undefined && this.#knows(next)
        ? this.#callBoth(step, next)
        : [await this.#call(step)],
    );
  }

  /** Begins and ends sessions around the calls of a turn, as the client does. */
  async #inSessions<T>(calls: () => Promise<T>): Promise<T> {
    const { session } = this.#habit;
    if (session === 'call' && this.#calls > 0) await this.#connect();
    const answers = await calls();
    if (session === 'turn' && this.#session !== undefined) await this.#endSession();
    return answers;
  }

  /** Ends its session, and begins another one. */
  async #endSession(): Promise<void> {
    await this.#send({ method: 'DELETE' });
    this.#session = undefined;
    await this.#connect();
  }

  /** The second call arrives while the handler of the first one runs. */
  async #callBoth(first: Step, second: Step): Promise<(Answer | 'lost')[]> {
    const held = this.#play.shop.hold(first);
    const one = this.#call(first);
    await Promise.race([held.begun, one]);
    const other = this.#call(second);
    await within(SECOND_CALL_MS, other);
    held.release();
    return [await one, await other];
  }

  /**
   * Hangs up while the handler runs. The model reads nothing, and will ask again; its client lists
   * after that. In the session era the step goes on, in the stateless one it is cancelled.
   */
  async #callAndHangUp(step: Step): Promise<void> {
    const held = this.#play.shop.hold(step);
    this.#calls += 1;
    const request = this.#requestOf(...this.#paramsOf(step));
    const { cut } = sendAndHold(this.#nextUrl(), this.#withHeaders(request));
    await held.begun;
    cut();
    if (this.#play.era === STATELESS) await within(CANCEL_MS, held.aborted);
    held.release();
    this.#toldOfChange = true;
  }

  async #call(tool: string): Promise<Answer | 'lost'> {
    this.#calls += 1;
    const answer = await this.#ask(...this.#paramsOf(tool));
    if (answer !== 'lost') return answer;
    if (this.#habit.onLostSession !== 'begins anew') return 'lost';
    this.#session = undefined;
    await this.#connect();
    await this.#list();
    return this.#ask(...this.#paramsOf(tool));
  }

  #paramsOf(tool: string): ['tools/call', Record<string, unknown>] {
    const required = this.#tools.get(tool)?.requires ?? [];
    const args = Object.fromEntries(required.map((name) => [name, this.#handed.get(name)]));
    return ['tools/call', { name: tool, arguments: { ...args } }];
  }

  async #connect(): Promise<void> {
    const { discovers, clientInfo = UNKNOWN_NAME } = this.#habit;
    if (discovers && this.#sent === 0) await this.#send(stateless('server/discover'));
    if (this.#play.era === STATELESS) return;
    const params = {
      protocolVersion: this.#play.era,
      capabilities: {},
      clientInfo: { name: clientInfo, version: '1.0.0' },
    };
    const { headers } = await this.#send({
      body: { jsonrpc: '2.0', id: 'init', method: 'initialize', params },
    });
    // Without one the mount has no sessions.
    const id = headers['mcp-session-id'];
    this.#session = typeof id === 'string' ? id : undefined;
    await this.#send({ body: { jsonrpc: '2.0', method: 'notifications/initialized' } });
  }

  async #list(): Promise<void> {
    this.#toldOfChange = false;
    const answer = await this.#ask('tools/list', {});
    if (answer === 'lost') return;
    const tools = (answer.result?.tools ?? []) as WireMessage[];
    this.#tools = new Map(
      tools.map(({ name, inputSchema, outputSchema }) => [
        String(name),
        { requires: inputSchema?.required ?? [], returns: outputSchema?.required ?? [] },
      ]),
    );
  }

  /**
   * The server forgets the session, as one does that was started again without its runs. Each
   * instance is told: the next call may be faster than what one tells the other.
   */
  async #forgetSession(): Promise<void> {
    for (const _ of this.#play.urls) await this.#send({ method: 'DELETE' });
  }

  async #ask(method: string, params: Record<string, unknown>): Promise<Answer | 'lost'> {
    const { status, messages } = await this.#send(this.#requestOf(method, params));
    if (status === 404) return 'lost';
    if (messages.some(isListChanged)) this.#toldOfChange = true;
    const { result, error } =
      messages.find((message) => 'result' in message || 'error' in message) ?? {};
    const content = (result?.content ?? []) as { text?: string }[];
    const text = error?.message ?? content.map((each) => each.text).join('\n');
    return { text: String(text), isError: error !== undefined || result?.isError === true, result };
  }

  #requestOf(method: string, params: Record<string, unknown>): RawRequest {
    const { conversation } = this.#habit;
    const _meta = { 'openai/session': 'v1/a-conversation-of-chatgpt' };
    const said = conversation ? { ...params, _meta } : params;
    if (this.#play.era === STATELESS) return stateless(method, said);
    this.#requests += 1;
    return { body: { jsonrpc: '2.0', id: this.#requests, method, params: said } };
  }

  #send(request: RawRequest): Promise<RawResponse> {
    return send(this.#nextUrl(), this.#withHeaders(request));
  }

  #withHeaders(request: RawRequest): RawRequest {
    const { era, token } = this.#play;
    const headers: Record<string, string> = { ...request.headers };
    if (this.#session !== undefined) {
      headers['mcp-session-id'] = this.#session;
      headers['mcp-protocol-version'] = era;
    }
    if (this.#habit.token) Object.assign(headers, token);
    return { ...request, headers };
  }

  #nextUrl(): URL {
    const { urls } = this.#play;
    this.#sent += 1;
    return urls[this.#sent % urls.length] as URL;
  }
}

/** The step that a refusal tells a model to call first. */
function adviceOf(text: string): Step | undefined {
  const [, called] = /\bcall (cart_\w+)/i.exec(text) ?? [];
  const [, available] = /Available now: (cart_\w+)/.exec(text) ?? [];
  return PLAN.find((step) => step === (called ?? available));
}

const isListChanged = ({ method }: WireMessage): boolean =>
  method === 'notifications/tools/list_changed';

/** Resolves once the event has come, or after so many milliseconds. */
async function within(ms: number, event: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  await Promise.race([event, late]);
  clearTimeout(timer);
}
