import { digestOf } from '../basics/digest.ts';
import { foldKey } from '../basics/names.ts';
import { mayHaveLong } from '../basics/numbers.ts';
import { isContainer } from '../basics/options.ts';
import { digestOfText } from '../basics/text-digest.ts';
import { type ExactJson, exactJson } from './exact-json.ts';
import { type Outline, outlinesOf } from './json-outline.ts';
import {
  errorResponse,
  IDEMPOTENCY_KEY,
  isLongId,
  isObject,
  isRequestId,
  JSON_RPC,
  type JsonObject,
  META_CLAIM,
  META_PREFIX,
  MOST_DEPTH,
  MOST_ID_BYTES,
  type RequestId,
} from './json-rpc.ts';
import type { JsonText } from './json-text.ts';
import { Message, memberAt } from './message.ts';
import { after, inOrder, type MaybePromise } from './task-line.ts';

/**
 * What becomes of a call. `alias`: the upstream gets it under a name that it does not know, so that
 * it fails there. `dropped`: its client waits for no answer, so it is neither forwarded nor
 * answered.
 */
type Fate = 'forward' | 'alias' | 'answered' | 'dropped';

/** Claimed something for a call. */
export interface Holder {
  /** The call is not forwarded after all: lets go of the claim. */
  withdraw(): MaybePromise<void>;
}

/** The kind of a message, by its shape. */
type MessageKind = 'request' | 'notification' | 'response';

/** Where a call's arguments are in its message. */
export const ARGUMENTS = ['params', 'arguments'];

/** One JSON-RPC message of a POST, and what becomes of it. */
export class Call {
  readonly kind: MessageKind;
  readonly message: Message;
  readonly id: RequestId | undefined;
  readonly method: string | undefined;
  /** In mount order. */
  holders: readonly Holder[] = [];
  /** By this the call's handler finds its step. Only the room that sets it knows its type. */
  attempt: object | undefined;
  /** Its number in the events; `undefined` where nothing listens to them. */
  number: number | undefined;
  /** Called once it is answered here or dropped, and all its holders have let go. */
  onSettled: (() => void) | undefined;
  #fate: Fate = 'forward';
  #answer: JsonObject | undefined;
  /** Whether JavaScript may round a number in the arguments that the client sent. */
  readonly mayRound: boolean;
  #namesPrototype: boolean | undefined;
  #isDeep: boolean | undefined;
  #exact: { readonly json: ExactJson | undefined; readonly edits: number } | undefined;

  constructor(
    kind: MessageKind,
    message: Message,
    id: RequestId | undefined,
    outline?: Pick<Outline, 'namesPrototype' | 'mayRound' | 'isDeep'>,
  ) {
    const { method } = message.value;
    this.kind = kind;
    this.message = message;
    this.id = id;
    this.method = typeof method === 'string' ? method : undefined;
    this.#namesPrototype = outline?.namesPrototype;
    this.#isDeep = outline?.isDeep;
    this.mayRound = outline?.mayRound === true;
  }

  get fate(): Fate {
    return this.#fate;
  }

  /** Our own answer, where it has one. */
  get answer(): JsonObject | undefined {
    return this.#answer;
  }

  /** Whether the upstream has or will get it. */
  get isForwardable(): boolean {
    return this.#fate === 'forward' || this.#fate === 'alias';
  }

  /** The name of the tool or the prompt, as it is now. */
  get named(): unknown {
    const { params } = this.message.value;
    return isObject(params) && Object.hasOwn(params, 'name') ? params.name : undefined;
  }

  /** The arguments as they are now, with the doubles that JavaScript makes of their numbers. */
  get args(): unknown {
    const { params } = this.message.value;
    return isObject(params) && Object.hasOwn(params, 'arguments') ? params.arguments : undefined;
  }

  /**
   * Whether the client sent `__proto__` as a key in the arguments, at any depth. Ask before the
   * arguments are changed.
   */
  get namesPrototype(): boolean {
    this.#namesPrototype ??= someValue(this.args, namesPrototype);
    return this.#namesPrototype;
  }

  /**
   * Whether the client nested the arguments deeper than `MOST_DEPTH`. Ask before they are changed.
   */
  get isDeep(): boolean {
    this.#isDeep ??= isDeep(this.args);
    return this.#isDeep;
  }

  /**
   * The arguments as they are now, where JavaScript would round a number in them. `undefined` also
   * where a parser in front has left no text: then the upstream reads the same doubles as we do.
   */
  get exactArguments(): ExactJson | undefined {
    if (!this.mayRound) return undefined;
    const { edits } = this.message;
    if (this.#exact?.edits !== edits) {
      const text = this.roundedText;
      this.#exact = { json: text === undefined ? undefined : exactJson(text, this.args), edits };
    }
    return this.#exact.json;
  }

  /** Their JSON text, where JavaScript may round a number in them. */
  get roundedText(): string | undefined {
    const text = this.mayRound ? this.message.textAt(ARGUMENTS) : undefined;
    // It is a window on the body's text, whose characters take longer to get. So it is copied.
    return text && Buffer.from(text, 'utf16le').toString('utf16le');
  }

  /** Whether a number in the arguments is longer than `LONGEST_LITERAL`. */
  get hasLongLiteral(): boolean {
    const text = this.roundedText;
    // What stands in a string may look like one.
    return text !== undefined && mayHaveLong(text) && this.exactArguments?.hasLongLiteral === true;
  }

  /** The same with an `ExactNumber` for each number that is not its double. */
  get sentArguments(): unknown {
    const exact = this.exactArguments;
    return exact === undefined ? this.args : exact.value;
  }

  /**
   * The digest of {@link sentArguments}. From the text where JavaScript rounds a number in them, so
   * that no number becomes an object.
   */
  get digest(): string {
    const text = this.roundedText;
    return text === undefined ? digestOf(this.args ?? {}) : digestOfText(text);
  }

  /** Answers it here; the upstream never sees it. */
  answerWith(response: JsonObject): MaybePromise<void> {
    this.#answer = response;
    return this.#turn('answered');
  }

  drop(): MaybePromise<void> {
    return this.#turn('dropped');
  }

  /** The caller has given it the unknown name. */
  alias(): MaybePromise<void> {
    return this.#turn('alias');
  }

  /** The holders let go one after another. */
  #turn(fate: Fate): MaybePromise<void> {
    const { holders } = this;
    this.#fate = fate;
    this.holders = [];
    const done = inOrder(holders, (holder) => holder.withdraw());
    return this.onSettled === undefined || fate === 'alias' ? done : after(done, this.onSettled);
  }
}

export interface BodyMessages {
  readonly isBatch: boolean;
  readonly messages: readonly Call[];
  /**
   * The request's other copies of the body differ from the one that we read. So all of them must be
   * written again, for the upstream to read the same.
   */
  readonly isStale: boolean;
}

/** The answer to a body that is refused as a whole. */
interface BadRequest {
  readonly status: number;
  readonly body: JsonObject;
}

const NO_ANSWERS: readonly JsonObject[] = [];

export function hasAnswer({ answer }: Call): boolean {
  return answer !== undefined;
}

/** Our own answers to these calls. */
export function answersIn(messages: readonly Call[]): readonly JsonObject[] {
  if (!messages.some(hasAnswer)) return NO_ANSWERS;
  return messages.map(({ answer }) => answer).filter((answer) => answer !== undefined);
}

/** The body that we go by, and the request's other copies of it. */
interface ReadBody {
  readonly value: unknown;
  readonly text: string | undefined;
  readonly others: readonly JsonText[];
}

/** Reads the messages of a POST's body, or says what is wrong with it. */
export function readCalls(
  { value, text, others }: ReadBody,
  maxBatch: number,
): BodyMessages | BadRequest {
  const whole = readCopy(value, text, maxBatch);
  if ('status' in whole) return whole;
  let best = whole;
  let isStale = false;
  for (const other of others) {
    const read = readCopy(other.value, other.text, maxBatch);
    if ('status' in read) return read;
    if (!agree(whole, read))
      return bad(null, 'Invalid Request: two copies of the body make different calls');
    const differ = text !== undefined && roundsApart(whole, read);
    if (differ || !isSameJson(value, other.value)) isStale = true;
    // A parser lost characters of the text: a copy that is text still has them.
    else if (text === undefined) best = read;
  }
  return { isBatch: best.isBatch, messages: best.messages, isStale };
}

type Read = Pick<BodyMessages, 'isBatch' | 'messages'>;

/** Whether two copies, equal once their numbers are rounded, may have other ones as text. */
function roundsApart(one: Read, other: Read): boolean {
  return one.messages.some((call, index) => {
    const twin = other.messages[index];
    const mayRound = call.mayRound || twin?.mayRound === true;
    return mayRound && call.message.text !== twin?.message.text;
  });
}

function readCopy(value: unknown, text: string | undefined, maxBatch: number): Read | BadRequest {
  if (!Array.isArray(value)) {
    const [outline] = text !== undefined && isObject(value) ? outlinesOf(text) : [];
    const message = read(value, text, outline);
    return 'status' in message ? message : { isBatch: false, messages: [message] };
  }
  if (value.length === 0) return bad(null, 'Invalid Request: a batch must not be empty');
  if (value.length > maxBatch) {
    return {
      ...bad(
        null,
        `Invalid Request: a batch holds at most ${maxBatch} messages, this one ${value.length}`,
      ),
      status: 413,
    };
  }
  const outlines = text === undefined ? [] : outlinesOf(text);
  const messages: Call[] = [];
  // Only an object has an outline. The first element that is none ends the loop.
  for (const [index, element] of value.entries()) {
    const message = read(element, text, outlines[index]);
    if ('status' in message) return message;
    messages.push(message);
  }
  return { isBatch: true, messages };
}

function read(
  value: unknown,
  whole: string | undefined,
  outline: Outline | undefined,
): Call | BadRequest {
  const object = isObject(value) ? value : undefined;
  const kind = object && messageKindOf(object);
  const id = isRequestId(object?.id) ? object.id : null;
  if (object === undefined || kind === undefined)
    return bad(id, 'Invalid Request: not a JSON-RPC 2.0 message');
  if (kind === 'request' && isLongId(id))
    return bad(null, `Invalid Request: an id has at most ${MOST_ID_BYTES} bytes`);
  const fault = oddKey(object, outline?.doubled) ?? oddName(object);
  if (fault !== undefined) return bad(id, `Invalid Request: the member ${fault}`);
  const text = outline && whole?.slice(outline.start, outline.end);
  const message = new Message(object, text, outline?.places);
  if (isObject(object.params) && isObject(object.params._meta))
    takeOwnOut(message, object.params._meta);
  return new Call(kind, message, id ?? undefined, outline);
}

/** `undefined` where the message is not JSON-RPC 2.0. */
function messageKindOf(message: JsonObject): MessageKind | undefined {
  if (message.jsonrpc !== '2.0') return undefined;
  if (Object.hasOwn(message, 'method')) {
    if (typeof message.method !== 'string') return undefined;
    if (!Object.hasOwn(message, 'id')) return 'notification';
    return isRequestId(message.id) ? 'request' : undefined;
  }
  const answered = Object.hasOwn(message, 'result') || Object.hasOwn(message, 'error');
  return answered && (isRequestId(message.id) || message.id === null || message.id === undefined)
    ? 'response'
    : undefined;
}

/**
 * A handler believes what stands under our own keys, such as the step that it runs in. So a client
 * must not write there. A tool's idempotency key stays: a gate in another process may have set it,
 * and each gate removes what it does not trust.
 */
function takeOwnOut(message: Message, meta: JsonObject): void {
  const isCall = message.at('method') === 'tools/call';
  for (const key of Object.keys(meta)) {
    const isOwn = foldKey(key).startsWith(META_PREFIX);
    if (isOwn && !(isCall && key === IDEMPOTENCY_KEY)) message.remove(['params', '_meta'], key);
  }
}

const ENVELOPE = ['jsonrpc', 'id', 'method', 'params', 'result', 'error'];
/**
 * The params that we read of each method: another spelling of one of them is refused. And those
 * that we read of any method.
 */
const READ_PARAMS: Readonly<Record<string, readonly string[]>> = {
  'tools/call': ['_meta', 'name', 'arguments', 'task'],
  'prompts/get': ['_meta', 'name', 'arguments'],
  'resources/read': ['_meta', 'uri'],
  'resources/directory/read': ['_meta', 'uri'],
  'skills/get': ['_meta', 'uri'],
};
const READ_OF_ANY = ['_meta'];
/** The most members of an envelope, of params or of `_meta`; MCP defines ten. */
const MOST_MEMBERS = 1_000;

/**
 * A key that other parsers might read in another way than we do, and why. Of equal keys one parser
 * takes the first, another the last. Go ignores letter case, in C a key ends at a NUL, and some
 * parsers make a prototype of `__proto__`.
 */
function oddKey(value: JsonObject, doubled: string | undefined): string | undefined {
  if (doubled !== undefined) return `${JSON.stringify(JSON.parse(`"${doubled}"`))} stands twice`;
  const { params, method } = value;
  const inEnvelope = ambiguousKey(Object.keys(value), ENVELOPE);
  if (inEnvelope !== undefined || !isObject(params)) return inEnvelope;
  const known = Object.hasOwn(READ_PARAMS, String(method))
    ? READ_PARAMS[String(method)]
    : READ_OF_ANY;
  const inParams = ambiguousKey(Object.keys(params), known ?? []);
  if (inParams !== undefined || !isObject(params._meta)) return inParams;
  const inMeta = Object.keys(params._meta);
  // Of `_meta` we read one key, which names the era. The others are not ours to judge.
  const claims = inMeta.filter((key) => foldKey(key) === foldKey(META_CLAIM));
  return membersFault(inMeta) ?? (claims.length > 1 ? ambiguousKey(claims, []) : undefined);
}

/** A name that another parser might cut short: in C a string ends at a NUL. */
function oddName(value: JsonObject): string | undefined {
  for (const path of NAMING) {
    const name = memberAt(value, path);
    if (typeof name === 'string' && name.includes('\0') && path !== ID)
      return `${JSON.stringify(path.at(-1))} has a NUL in it`;
  }
  return undefined;
}

/** A loop: each message asks twice, and mostly that is all. */
function areAmong(keys: readonly string[], known: readonly string[]): boolean {
  for (const key of keys) if (!known.includes(key)) return false;
  return true;
}

function ambiguousKey(keys: readonly string[], known: readonly string[]): string | undefined {
  // Two of them differ, as keys of one object.
  if (areAmong(keys, known)) return undefined;
  const fault = membersFault(keys);
  if (fault !== undefined) return fault;
  const seen = new Set<string>();
  for (const key of keys) {
    const folded = known.includes(key) ? key : foldKey(key);
    if (seen.has(folded)) return `${JSON.stringify(key)} stands twice`;
    seen.add(folded);
    if (known.includes(folded) && folded !== key) {
      return `${JSON.stringify(key)} must be spelled ${JSON.stringify(folded)}`;
    }
  }
  return undefined;
}

function membersFault(keys: readonly string[]): string | undefined {
  if (keys.includes('__proto__')) return '"__proto__" must not stand there';
  if (keys.length <= MOST_MEMBERS) return undefined;
  return `${JSON.stringify(keys[MOST_MEMBERS])} is one of more than ${MOST_MEMBERS}`;
}

/** Whether the object has this key in another letter case, which some parsers take for the same. */
export function isAmbiguous({ message }: Call, path: readonly string[], key: string): boolean {
  const object = message.at(...path);
  if (!isObject(object)) return false;
  const folded = foldKey(key);
  return Object.keys(object).some((each) => each !== key && foldKey(each) === folded);
}

/** The members that say which calls a body makes. */
const ID = ['id'];
const NAMING = [ID, ['method'], ['params', 'name'], ['params', 'uri'], ['params', 'taskId']];

/** Whether two copies of one body make the same calls. Their arguments may differ. */
function agree(one: Read, other: Read): boolean {
  return (
    one.isBatch === other.isBatch &&
    one.messages.length === other.messages.length &&
    one.messages.every(({ kind, message }, index) => {
      const twin = other.messages[index];
      return (
        twin?.kind === kind &&
        NAMING.every((path) => isSameJson(message.at(...path), twin.message.at(...path)))
      );
    })
  );
}

function bad(id: RequestId | null, message: string): BadRequest {
  return { status: 400, body: errorResponse(id, JSON_RPC.INVALID_REQUEST, message) };
}

// --- JSON values, read without recursion: a client decides how deep they are -------------------

/** Whether the value, or any value in it, passes a test. */
export function someValue(value: unknown, passes: (value: unknown) => boolean): boolean {
  if (passes(value)) return true;
  const rest = [value];
  while (rest.length > 0) {
    const each = rest.pop();
    // Only containers wait for their turn: there may be millions of other values.
    if (Array.isArray(each)) {
      for (const inner of each) {
        if (passes(inner)) return true;
        if (isContainer(inner)) rest.push(inner);
      }
    } else if (isObject(each)) {
      for (const key of Object.keys(each)) {
        if (passes(each[key])) return true;
        if (isContainer(each[key])) rest.push(each[key]);
      }
    }
  }
  return false;
}

function namesPrototype(value: unknown): boolean {
  return isObject(value) && Object.hasOwn(value, '__proto__');
}

/** Whether more objects and lists than {@link MOST_DEPTH} are nested in the value, with itself. */
export function isDeep(value: unknown): boolean {
  let level = [value].filter(isContainer) as object[];
  for (let depth = 1; level.length > 0; depth++) {
    if (depth > MOST_DEPTH) return true;
    const inner: object[] = [];
    for (const each of level)
      for (const member of Object.values(each)) if (isContainer(member)) inner.push(member);
    level = inner;
  }
  return false;
}

/** Whether two values are the same JSON. The order of members does not count. */
function isSameJson(one: unknown, other: unknown): boolean {
  const rest = [one, other];
  while (rest.length > 0) {
    const [a, b] = [rest.pop(), rest.pop()];
    if (Object.is(a, b) || (a === 0 && b === 0)) continue;
    if (Array.isArray(a) && Array.isArray(b)) {
      if (a.length !== b.length) return false;
      for (let at = 0; at < a.length; at++) rest.push(a[at], b[at]);
    } else if (isObject(a) && isObject(b)) {
      const keys = Object.keys(a);
      if (keys.length !== Object.keys(b).length) return false;
      for (const key of keys) {
        if (!Object.hasOwn(b, key)) return false;
        rest.push(a[key], b[key]);
      }
    } else return false;
  }
  return true;
}

// --- Late responses -----------------------------------------------------------------------------

/** Changes a response on another stream as its request's own exchange would have done. */
type LateResponse = (message: Message) => MaybePromise<void>;

/**
 * How much depends on a late response. `step`: the gate waits for it, to save what a step came to.
 * `given-up`: it would still save that, but the gate waits no more. `repeat`: nothing depends on
 * it, because it came before, or can be asked for again.
 */
export type LateStake = 'step' | 'given-up' | 'repeat';

interface LatePart {
  readonly apply: LateResponse;
  readonly stakeOf: () => LateStake;
}

const REPEAT = (): LateStake => 'repeat';
const EVICTED_FIRST: readonly LateStake[] = ['repeat', 'given-up'];

const MAX_REQUESTS = 100;

/**
 * Responses that arrive, or arrive again, on another stream than their request's. A client that
 * lost a stream resumes it with a GET and `Last-Event-ID` (MCP 2025-11-25, Transports,
 * "Resumability and Redelivery"). Of more than 100 requests, those are forgotten first on which
 * least depends, and of those the oldest. A step that the gate waits for is never forgotten.
 */
export class LateResponses {
  readonly #requests = new Map<RequestId, Map<string, LatePart>>();

  get size(): number {
    return this.#requests.size;
  }

  /** Whether the gate waits for as many steps as may be remembered: then no other may begin. */
  get isFull(): boolean {
    if (this.#requests.size < MAX_REQUESTS) return false;
    let waiting = 0;
    for (const parts of this.#requests.values()) if (stakeOf(parts) === 'step') waiting++;
    return waiting >= MAX_REQUESTS;
  }

  /**
   * Each `part` has one function for a response; a second one replaces the first.
   *
   * @param stake how much depends on it, asked whenever a request is to be forgotten
   */
  expect(id: RequestId, part: string, apply: LateResponse, stake = REPEAT): void {
    const parts = this.#requests.get(id) ?? new Map<string, LatePart>();
    this.#requests.set(id, parts.set(part, { apply, stakeOf: stake }));
    if (this.#requests.size > MAX_REQUESTS) this.#forgetOne();
  }

  #forgetOne(): void {
    for (const stake of EVICTED_FIRST) {
      for (const [id, parts] of this.#requests) {
        if (stakeOf(parts) !== stake) continue;
        this.#requests.delete(id);
        return;
      }
    }
  }

  apply(id: RequestId, message: Message): MaybePromise<void> {
    const parts = this.#requests.get(id);
    if (parts !== undefined) return inOrder([...parts.values()], ({ apply }) => apply(message));
  }
}

/** The highest stake of a response's parts. */
function stakeOf(parts: ReadonlyMap<string, LatePart>): LateStake {
  let highest: LateStake = 'repeat';
  for (const part of parts.values()) {
    const stake = part.stakeOf();
    if (stake === 'step') return stake;
    if (stake === 'given-up') highest = stake;
  }
  return highest;
}
