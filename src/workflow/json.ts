import { isTable, showValue } from '../options.ts';
import type { Json } from '../stores/store.ts';

/**
 * A frozen copy of a value that is JSON. Properties that are `undefined` are left out, as JSON
 * does.
 *
 * @param where names the value in the error: `'the context'`.
 * @throws Error where a store could not give back what it was given: a function, a date, a number
 * that is not finite, a cycle.
 */
export function jsonOf(value: unknown, where: string): Json {
  return copy(value, where, new Set());
}

function copy(value: unknown, where: string, above: ReadonlySet<unknown>): Json {
  if (value === null || typeof value === 'string' || typeof value === 'boolean') return value;
  if (typeof value === 'number' && Number.isFinite(value)) return value;
  if (above.has(value)) throw new Error(`${where} contains itself`);
  const inside = new Set([...above, value]);
  if (Array.isArray(value)) {
    const items = value.map((item, index) => copy(item, `${where}[${index}]`, inside));
    return Object.freeze(items) as Json[];
  }
  if (!isPlain(value)) throw new Error(`${where} is ${describe(value)}, which is not JSON`);
  const entries = Object.entries(value).filter(([, item]) => item !== undefined);
  const copied = entries.map(
    ([key, item]) => [key, copy(item, `${where}.${key}`, inside)] as const,
  );
  return Object.freeze(Object.fromEntries(copied));
}

function isPlain(value: unknown): value is Record<string, unknown> {
  if (!isTable(value)) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return (
    prototype === null ||
    prototype === Object.prototype ||
    Object.getPrototypeOf(prototype) === null
  );
}

function describe(value: unknown): string {
  const name: unknown = isTable(value) ? value.constructor?.name : undefined;
  return typeof name === 'string' && name !== '' && name !== 'Object'
    ? `a ${name}`
    : showValue(value);
}
