/**
 * What a client may ask, checked: hides how it distinguishes a malformed request from a right one.
 */
import * as z from 'zod/mini';
import type { Json } from './api.ts';
import { HttpFailure } from './http.ts';
import type { ListedQuery } from './inspected.ts';
import type { SearchedQuery } from './search.ts';

/** So many calls are resolved with one request. */
const MOST_AT_ONCE = 50;

/** Longer names are no names of ours. */
const name = z.string().check(z.minLength(1), z.maxLength(4_096));
const json = z.custom<Json>((value) => value !== undefined);
const version = z.int().check(z.minimum(0));
const outcome = z.enum(['succeeded', 'failed']);

const resolve = z.strictObject({
  outcome,
  step: name,
  event: z.optional(name),
  note: z.optional(z.string().check(z.maxLength(2_000))),
  payload: z.optional(json),
});
const send = z.strictObject({ event: name, payload: z.optional(json), version });
const restart = z.strictObject({ version });
const remove = z.strictObject({ digest: name });
const note = z.string().check(z.trim(), z.minLength(1), z.maxLength(2_000));
const freeze = z.strictObject({ note });
const freezeCalls = z.strictObject({ note, tool: z.optional(name) });
const unfreezeCalls = z.strictObject({ note, tool: z.optional(name), at: z.number() });
const id = z.string().check(z.minLength(1), z.maxLength(8_192));
const resolveMany = z.strictObject({
  outcome,
  note,
  runs: z
    .array(z.strictObject({ id, step: name }))
    .check(z.minLength(1), z.maxLength(MOST_AT_ONCE))
    .check(
      z.refine((runs) => new Set(runs.map((run) => `${run.id} ${run.step}`)).size === runs.length),
    ),
});
const search = z
  .strictObject({
    text: z.optional(z.string().check(z.trim(), z.minLength(1), z.maxLength(4_096))),
    withinMs: z.optional(z.int().check(z.minimum(1))),
    after: z.optional(id),
  })
  .check(z.refine(({ text, withinMs }) => text !== undefined || withinMs !== undefined));
const whatIf = z.strictObject({
  from: z.optional(
    z.union([
      z.strictObject({ run: name }),
      z.strictObject({ at: z.string().check(z.minLength(1)) }),
    ]),
  ),
  move: z.optional(
    z.union([
      z.strictObject({ tool: name, outcome, event: z.optional(name) }),
      z.strictObject({ event: name, payload: z.optional(json) }),
      z.strictObject({ deadline: z.literal(true) }),
    ]),
  ),
});

const count = (most: number) =>
  z.pipe(
    z.string().check(z.regex(/^\d{1,15}$/)),
    z.pipe(z.transform(Number), z.int().check(z.minimum(1), z.maximum(most))),
  );
const list = z.strictObject({
  list: z._default(z.enum(['held', 'unsettled', 'open', 'resolved']), 'open'),
  state: z.optional(name),
  stuckForMs: z.optional(count(Number.MAX_SAFE_INTEGER)),
  limit: z._default(count(200), 50),
  after: z.optional(name),
});
const trail = z.strictObject({
  before: z.optional(count(Number.MAX_SAFE_INTEGER)),
  limit: z._default(count(200), 50),
});
const events = z.strictObject({ workflow: z.optional(name), run: z.optional(name) });

/** Each of them throws an {@link HttpFailure} `bad-request` that names the wrong member. */
export const parseRequest = {
  resolve: (body: unknown) => parsed(resolve, body),
  send: (body: unknown) => parsed(send, body),
  restart: (body: unknown) => parsed(restart, body),
  delete: (body: unknown) => parsed(remove, body),
  freeze: (body: unknown) => parsed(freeze, body),
  freezeCalls: (body: unknown) => parsed(freezeCalls, body),
  unfreezeCalls: (body: unknown) => parsed(unfreezeCalls, body),
  search: (body: unknown): SearchedQuery => parsed(search, body),
  resolveMany: (body: unknown) => parsed(resolveMany, body),
  whatIf: (body: unknown) => parsed(whatIf, body),
  list: (query: URLSearchParams): ListedQuery => parsed(list, tableOf(query)),
  trail: (query: URLSearchParams) => parsed(trail, tableOf(query)),
  events: (query: URLSearchParams) => parsed(events, tableOf(query)),
};

/** A parameter that comes twice could be read in two ways. */
function tableOf(query: URLSearchParams): Record<string, string> {
  const names = [...query.keys()];
  if (new Set(names).size < names.length)
    throw new HttpFailure('bad-request', 'A parameter of the URL is there twice.');
  return Object.fromEntries(query);
}

/** Members that are `undefined` are absent. */
function parsed<T extends z.ZodMiniType>(schema: T, value: unknown): z.output<T> {
  const { success, data, error } = schema.safeParse(value);
  if (success) return data;
  const [issue] = error.issues;
  const where = issue?.path.map(String).join('.') || 'the request';
  const keys = issue?.code === 'unrecognized_keys' ? `: unknown ${issue.keys.join(', ')}` : '';
  throw new HttpFailure('bad-request', `${where.slice(0, 200)} is malformed${keys.slice(0, 200)}.`);
}
