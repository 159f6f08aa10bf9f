/**
 * What the app says of a held step: how much it is about, and where to look its outcome up. Hides
 * what of that may reach a browser. What the app's functions get wrong costs a link, never a page.
 */
import type { InterlockError } from 'mcp-interlock';
import type { Abilities, Json, StepNow } from './api.ts';
import { fault } from './options.ts';

/** What `amount` and `look` are given. */
export interface HeldStep {
  /** The gate's id. */
  readonly workflow: string;
  /** The run as logs name it: 16 hex digits. */
  readonly run: string;
  readonly tool: string;
  /** What the handler was given, so that the other system knows the call by it. */
  readonly idempotencyKey: string;
  /** The arguments, as the gate's `trail.args` lets them through. */
  readonly args: Json | undefined;
  /** Who called. */
  readonly actor: string | undefined;
  /** The id of the JSON-RPC request. */
  readonly requestId: string | number | undefined;
  /** When it was called, in milliseconds since the epoch. */
  readonly since: number | undefined;
}

export type AmountOf = (step: HeldStep) => string | undefined;

export type LookAt = (step: HeldStep) => string | URL | undefined;

interface HeldStepsOptions {
  readonly amount: AmountOf | undefined;
  readonly look: LookAt | undefined;
  readonly onError: (error: unknown) => void;
}

const MOST_AMOUNT = 100;
const MOST_URL = 2_048;
const MOST_ARGS = 4_096;
/** A page that is open asks for a step again and again: its faults are reported once. */
const MOST_FAULTS = 1_000;

export class HeldSteps {
  readonly #options: HeldStepsOptions;
  readonly #faults = new Set<string>();

  constructor(options: HeldStepsOptions) {
    this.#options = options;
  }

  /** @param id names the step */
  said(id: string, step: HeldStep, { write }: Abilities): Pick<StepNow, 'amount' | 'look'> {
    const { amount: amountOf = amountIn, look: lookAt } = this.#options;
    const amount = this.#safely(`amount ${id}`, () => checkedAmount(amountOf(step)));
    // The link may hold the idempotency key, which only a visitor with `write` may see.
    const look =
      write && lookAt ? this.#safely(`look ${id}`, () => checkedUrl(lookAt(step))) : undefined;
    return { ...(amount !== undefined && { amount }), ...(look !== undefined && { look }) };
  }

  #safely<T>(what: string, ask: () => T): T | undefined {
    try {
      return ask();
    } catch (error) {
      if (!this.#faults.has(what)) this.#options.onError(error);
      if (this.#faults.size >= MOST_FAULTS) this.#faults.clear();
      this.#faults.add(what);
      return undefined;
    }
  }
}

/** As they are, or as a text that is cut off where they are long. */
export function shownArgs(args: Json | undefined): Json | undefined {
  if (args === undefined) return undefined;
  const text = JSON.stringify(args);
  return text.length > MOST_ARGS ? `${text.slice(0, MOST_ARGS)}…` : args;
}

function amountIn({ args }: HeldStep): string | undefined {
  if (typeof args !== 'object' || args === null || Array.isArray(args)) return undefined;
  const amount = args.amount ?? args.total;
  if (typeof amount !== 'number' && typeof amount !== 'string') return undefined;
  const { currency } = args;
  const text = typeof currency === 'string' ? moneyIn(amount, currency) : String(amount);
  return text.length > MOST_AMOUNT ? undefined : text;
}

/** `1,200.00 EUR`: as many digits as the currency has. What is no number stays as it is. */
function moneyIn(amount: number | string, currency: string): string {
  const isNumber = /^-?\d{1,15}(\.\d{1,4})?$/.test(String(amount));
  if (!isNumber || !/^[A-Z]{3}$/.test(currency)) return `${amount} ${currency}`;
  const { maximumFractionDigits: digits = 2 } = new Intl.NumberFormat('en', {
    style: 'currency',
    currency,
  }).resolvedOptions();
  const format = { minimumFractionDigits: digits, maximumFractionDigits: Math.max(4, digits) };
  return `${new Intl.NumberFormat('en', format).format(Number(amount))} ${currency}`;
}

function checkedAmount(amount: unknown): string | undefined {
  if (amount === undefined) return undefined;
  if (typeof amount !== 'string' || amount.length > MOST_AMOUNT)
    throw wrong('amount', `a text of at most ${MOST_AMOUNT} characters`, amount);
  return amount;
}

function checkedUrl(given: unknown): string | undefined {
  if (given === undefined) return undefined;
  const text = given instanceof URL ? given.href : given;
  const right = `an http or https URL of at most ${MOST_URL} characters, without a login`;
  if (typeof text !== 'string' || !URL.canParse(text)) throw wrong('look', right, given);
  const { protocol, username, password, href } = new URL(text);
  const isWeb = protocol === 'https:' || protocol === 'http:';
  if (!isWeb || username !== '' || password !== '' || href.length > MOST_URL)
    throw wrong('look', right, isWeb ? given : `a URL of ${protocol}`);
  return href;
}

/** A URL that is wrong may hold a secret, so an error names its kind alone. */
function wrong(option: string, right: string, got: unknown): InterlockError {
  const kind = typeof got === 'string' && got.startsWith('a URL of ') ? got : kindOf(got);
  return fault(`${option} returned ${kind}, expected ${right}`);
}

function kindOf(value: unknown): string {
  if (value instanceof Promise) return 'a promise';
  return value === null ? 'null' : `a ${typeof value}`;
}
