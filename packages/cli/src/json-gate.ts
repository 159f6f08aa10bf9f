/**
 * Workflows in JSON, for those who write no TypeScript. Hides the format: one schema says what is
 * right, to the command and, as JSON Schema, to editors.
 */
import {
  type Condition,
  type Limit,
  type OrderOptions,
  type OrderRules,
  StateMachineGate,
  type StateSyncConfig,
} from 'mcp-interlock';
import * as z from 'zod/mini';
import { rightNames } from '../../../src/basics/names.ts';
import { isTable, parseOptions, showValue } from '../../../src/basics/options.ts';
import { Failure } from './command-line.ts';
import { parseJson } from './strict-json.ts';

const text = z.string().check(z.minLength(1));

/** A schema with words for editors. */
function about<T extends z.ZodMiniType>(schema: T, description: string): T {
  const described = schema.clone();
  z.globalRegistry.add(described, { description });
  return described as T;
}

/** What a schema cannot say by itself, for editors. {@link StateMachineGate} checks it. */
function alsoIn<T extends z.ZodMiniType>(schema: T, keywords: Record<string, unknown>): T {
  const explained = schema.clone();
  z.globalRegistry.add(explained, keywords);
  return explained as T;
}

const textsSchema = z.array(text).check(z.minLength(1));
const statesSchema = z.union([text, textsSchema]);

/** As `bindTool()` takes it: a name, `*` for any state, or what is made of these. */
type Expression = string | { not: Expression } | { any: Expression[] } | { all: Expression[] };

const expressionForms = [
  text,
  z.strictObject({ not: z.lazy(() => expressionSchema) }),
  z.strictObject({ any: z.array(z.lazy(() => expressionSchema)).check(z.minLength(1)) }),
  z.strictObject({ all: z.array(z.lazy(() => expressionSchema)).check(z.minLength(1)) }),
] as const;

const expressionSchema: z.ZodMiniType<Expression> = z.union(expressionForms);

const errors = z.optional(
  about(
    z.enum(['failed', 'unknown']),
    'What an error of the tool says of its outcome. Default: "failed".',
  ),
);

const uncertain = z.optional(
  about(
    z.enum(['hold', 'retry']),
    'What follows a call whose outcome is unknown: "hold" stops the run, ' +
      '"retry" lets it try again.',
  ),
);

const scalarSchema = z.union([z.string(), z.number(), z.boolean(), z.null()]);

const comparisonSchema = alsoIn(
  z.strictObject({
    eq: z.optional(scalarSchema),
    ne: z.optional(scalarSchema),
    gt: z.optional(z.number()),
    gte: z.optional(z.number()),
    lt: z.optional(z.number()),
    lte: z.optional(z.number()),
    in: z.optional(z.array(scalarSchema).check(z.minLength(1))),
    exists: z.optional(z.boolean()),
  }),
  { minProperties: 1 },
);

/** As `bindTool()` takes it, which checks it. */
const conditionSchema: z.ZodMiniType<Condition> = alsoIn(
  z.catchall(
    z.object({
      any: z.optional(z.array(z.lazy(() => conditionSchema)).check(z.minLength(1))),
      not: z.optional(z.lazy(() => conditionSchema)),
    }),
    z.union([scalarSchema, comparisonSchema]),
  ) as z.ZodMiniType<Condition>,
  { minProperties: 1 },
);

const ok = z.optional(
  about(
    conditionSchema,
    'What counts as success, by paths into the result: { "status": "approved" }. ' +
      'Default: each result without `isError`.',
  ),
);
const results = z.optional(
  about(
    z.enum(['structured', 'text']),
    'What `ok` reads: `structuredContent`, or else the one text block as JSON ("text").',
  ),
);

const within = z.optional(
  about(
    z.union([
      z.int().check(z.minimum(1)),
      z
        .string()
        .check(
          z.regex(/^\d{1,15}(ms|s|m|h|d)$/, 'expected a duration such as "30s", "2m" or "24h"'),
        ),
    ]),
    'For how long such a call counts: milliseconds, or a whole number with a unit: "30s", "2m", ' +
      '"24h", "7d". Default: for ever.',
  ),
);

const when = z.optional(
  about(conditionSchema, 'Only for calls whose own arguments meet this. Default: for each call.'),
);

const whenCaller = z.optional(
  about(
    conditionSchema,
    'Only for calls whose caller meets this, by what `--claims` names: { "role": "clerk" }.',
  ),
);

const counted = z.optional(
  about(
    z.enum(['succeeded', 'failed', 'any']),
    'Which outcome counts; "any" is each call that was forwarded. Default: "succeeded".',
  ),
);

const mostTimes = z.maximum(1_000);

/** Exactly one of these members. */
const oneOf = (...names: readonly (readonly string[])[]) => ({
  oneOf: names.map((required) => ({ required })),
});

const fold = z.optional(
  about(
    z.array(z.enum(['space', 'nfkc', 'case'])).check(z.minLength(1)),
    'What makes two spellings of a text one, in both calls. Default: none.',
  ),
);

const earlierValue = z.union([
  text,
  alsoIn(
    z.strictObject({
      args: z.optional(text),
      result: z.optional(text),
      fold,
    }),
    oneOf(['args'], ['result']),
  ),
]);

const scale = z.optional(
  about(text, 'A decimal by which the amount is multiplied, such as "0.01" for cents.'),
);

const earlierAmount = z.union([
  text,
  alsoIn(
    z.strictObject({
      args: z.optional(text),
      result: z.optional(text),
      text: z.optional(z.boolean()),
      negative: z.optional(z.boolean()),
      scale,
    }),
    oneOf(['args'], ['result']),
  ),
]);

const sameSchema = z.union([z.literal('all'), textsSchema, z.record(z.string(), earlierValue)]);

const pastShape = {
  tool: z.optional(about(text, 'The earlier tool.')),
  outside: z.optional(about(text, 'What comes from outside, by a name of `outside`.')),
  within,
  same: z.optional(
    about(
      sameSchema,
      'The values that must agree: ["order_id"], or { "to": { "result": "accountId" } }, from ' +
        'this call\'s arguments to the earlier call; "all": all arguments.',
    ),
  ),
  when,
  whenCaller,
  args: z.optional(about(conditionSchema, 'Only earlier calls whose arguments met this.')),
  byCaller: z.optional(about(conditionSchema, 'Only earlier calls whose caller met this then.')),
  result: z.optional(about(conditionSchema, 'Only earlier calls whose result met this.')),
  outcome: counted,
  times: z.optional(
    about(z.int().check(z.minimum(1), mostTimes), 'How many such calls. Default: 1.'),
  ),
  distinct: z.optional(
    about(
      earlierValue,
      'Counts different values only, beside `times`: "approved_by". Beside `outside`, "by" is ' +
        'who sent it.',
    ),
  ),
};

/** The members that only a requirement with `tool` or `outside` has. */
const ofEither = { anyOf: [{ required: ['tool'] }, { required: ['outside'] }] };
const ofSource = {
  ...Object.fromEntries(
    Object.keys({ ...pastShape, consumes: true, atMost: true })
      .filter((name) => !['tool', 'outside', 'when', 'whenCaller'].includes(name))
      .map((name) => [name, ofEither]),
  ),
  distinct: { ...ofEither, required: ['times'] },
  outcome: ['tool'],
  byCaller: ['tool'],
};

const pastForms = [
  text,
  alsoIn(z.strictObject(pastShape), {
    ...oneOf(['tool'], ['outside']),
    dependencies: ofSource,
  }),
] as const;

type SharedLimit = NonNullable<OrderOptions['limits']>[number];

/** As `fromOrder()` takes it. A schema alone cannot type what refers to itself. */
type JsonRequirement = string | { readonly [name: string]: unknown };

const requirementForms = [
  text,
  alsoIn(
    z.strictObject({
      ...pastShape,
      consumes: z.optional(
        about(
          z.union([z.boolean(), z.literal('calls')]),
          'Whether a success uses the earlier calls up; "calls": a failure, too. Default: false.',
        ),
      ),
      differs: z.optional(
        about(
          z.array(z.literal('caller')),
          'Beside `outside`: only what somebody else has sent than the caller.',
        ),
      ),
      atMost: z.optional(
        about(
          z.record(z.string(), earlierAmount),
          'Amounts of this call, and that of one earlier call that each is at most.',
        ),
      ),
      need: z.optional(about(text, 'The name of one of the `needs`.')),
      all: z.optional(z.array(z.lazy(() => requirementSchema)).check(z.minLength(1))),
      any: z.optional(z.array(z.lazy(() => requirementSchema)).check(z.minLength(1))),
    }),
    {
      ...oneOf(['tool'], ['outside'], ['need'], ['all'], ['any']),
      dependencies: { ...ofSource, differs: ['outside'] },
    },
  ),
] as const;

const requirementSchema: z.ZodMiniType<JsonRequirement> = z.union(requirementForms);

const limitedBy = z.union([
  z.literal('all'),
  textsSchema,
  z.record(z.string(), z.strictObject({ args: text, fold })),
]);

const boundShape = {
  times: z.optional(
    about(z.int().check(z.minimum(0), mostTimes), 'At most so many calls, with this one.'),
  ),
  sum: z.optional(
    about(
      z.union([
        text,
        z.strictObject({
          path: text,
          text: z.optional(z.boolean()),
          negative: z.optional(z.boolean()),
        }),
      ]),
      'The argument to add up: a number, or with `text` also a text such as "12.50".',
    ),
  ),
  max: z.optional(
    about(
      z.union([
        z.number().check(z.minimum(0)),
        z.strictObject({
          sum: earlierAmount,
          of: text,
          same: z.optional(sameSchema),
          within,
        }),
      ]),
      'The sum is at most so much, or at most what successes of a tool add up to.',
    ),
  ),
  below: z.optional(about(z.number().check(z.gt(0)), 'The sum is less than so much.')),
  within,
  same: z.optional(about(limitedBy, 'A limit for each value of these arguments.')),
  outcome: counted,
};

const boundForms = {
  ...oneOf(['times'], ['sum', 'max'], ['sum', 'below']),
  dependencies: { max: ['sum'], below: ['sum'] },
};

/** As `bindTool()` and `fromOrder()` take it, which check it. */
const limitSchema = alsoIn(
  z.strictObject({ ...boundShape, when, whenCaller }),
  boundForms,
) as z.ZodMiniType as z.ZodMiniType<Limit>;

const limitedTool = z.union([
  text,
  z.strictObject({
    tool: text,
    sum: z.optional(text),
    text: z.optional(z.boolean()),
    scale,
    same: z.optional(z.record(z.string(), text)),
    when,
  }),
]);

const sharedLimits = z.optional(
  about(
    z.array(
      alsoIn(
        z.strictObject({
          of: z.array(limitedTool).check(z.minLength(1)),
          ...boundShape,
          from: z.optional(about(text, 'A time: earlier calls do not count.')),
        }),
        boundForms,
      ) as z.ZodMiniType as z.ZodMiniType<SharedLimit>,
    ),
    'Limits that the calls of several tools share.',
  ),
);

const limit = z.optional(
  about(
    z.union([limitSchema, z.array(limitSchema).check(z.minLength(1))]),
    'How often it may be called, or how much its calls may add up to; each of a list.',
  ),
);

const renamed = {
  renamed: z.optional(
    about(z.array(text).check(z.minLength(1)), 'The names that the tool had before, oldest first.'),
  ),
  args: z.optional(
    about(z.record(z.string(), text), 'Paths of arguments today, and the oldest path of each.'),
  ),
};

const bindingSchema = z.strictObject({
  states: about(
    z.union([...expressionForms, z.array(expressionSchema).check(z.minLength(1))]),
    'The states in which the tool is available: names, "*" for any, or { "not": "paid" }.',
  ),
  success: z.optional(about(text, 'The event that a successful call sends. Default: none.')),
  failure: z.optional(about(text, 'The event that a failed call sends. Default: none.')),
  ...renamed,
  retries: z.optional(
    about(
      z.int().check(z.minimum(1)),
      'How many failures in one stay of a state are counted before `failure` is sent. Default: 0.',
    ),
  ),
  uncertain,
  errors,
  ok,
  results,
  limit,
  readOnly: z.optional(
    about(z.boolean(), 'The author says that the tool changes nothing: beside `whileHeld`.'),
  ),
  whileHeld: z.optional(
    about(
      z.boolean(),
      'Whether calls go on while the run is held. For a binding without an event that says ' +
        '`readOnly`.',
    ),
  ),
});

const toolSchema = z.union([
  text,
  textsSchema,
  bindingSchema,
  z.array(bindingSchema).check(z.minLength(1)),
]);

const transitionSchema = z.union([
  text,
  z.strictObject({
    target: about(text, 'The state that the event leads to.'),
    reenter: z.optional(
      about(
        z.boolean(),
        'Whether an event that leads to its own state enters it again: its deadline begins anew. ' +
          'Default: false.',
      ),
    ),
  }),
]);

const stateSchema = z.strictObject({
  on: z.optional(z.record(z.string(), transitionSchema)),
  after: z.optional(
    about(
      z.record(z.string().check(z.regex(/^\d+$/)), text),
      'Where a run goes by itself after so many milliseconds: { "900000": "expired" }.',
    ),
  ),
  type: z.optional(z.literal('final')),
});

const policySchema = z.strictObject({
  match: about(text, 'A glob over names of tools: "cart_*".'),
  cacheControl: z.optional(z.enum(['no-store', 'immutable'])),
  invalidates: z.optional(about(z.array(text), 'Globs over the tools whose answers are stale.')),
});

const id = about(
  z.string().check(z.regex(/^[\w.-]{1,64}$/, 'expected 1 to 64 letters, digits, "_", "." or "-"')),
  'Names the workflow to stores, models and logs.',
);

const common = {
  $schema: z.optional(z.string()),
  sync: z.optional(about(z.array(policySchema), 'Which answers a call makes stale.')),
};

/** A table with the user's own names. Zod's records lose `__proto__`: this checks each name. */
type TableOf = <T extends z.ZodMiniType>(names: unknown, value: T) => z.ZodMiniType;

const machineSchema = (document: Record<string, unknown>, table: TableOf) =>
  z.strictObject({
    ...common,
    id,
    initial: about(text, 'The state in which every run begins.'),
    on: z.optional(
      about(
        z.record(z.string(), transitionSchema),
        'What an event leads to in each state that does not name it, but in no final one.',
      ),
    ),
    states: about(table(document.states, stateSchema), 'What each event leads to, by state.'),
    tools: z.optional(
      about(
        table(document.tools, toolSchema),
        'Where each tool is available, and what it does, by name or by glob: "admin.*" is each ' +
          'name with one more segment, "admin.**" with any number, "get_*" with this beginning. ' +
          'An exact name wins over globs.',
      ),
    ),
    prompts: z.optional(about(table(document.prompts, statesSchema), 'Where prompts are.')),
    limits: sharedLimits,
    resources: z.optional(
      about(table(document.resources, statesSchema), 'Where resources are, by globs over URIs.'),
    ),
  });

const ruleSchema = z.strictObject({
  after: z.optional(
    about(
      z.union([...requirementForms, z.array(requirementSchema).check(z.minLength(1))]),
      'What must have happened before: a tool, { "tool" }, { "outside" }, { "need" }, ' +
        '{ "all" }, { "any" }, or a list (all required).',
    ),
  ),
  notAfter: z.optional(
    about(
      z.union([...pastForms, z.array(z.union(pastForms)).check(z.minLength(1))]),
      'What must not have happened before; none of a list. It may name its own tool.',
    ),
  ),
  limit,
  caller: z.optional(
    about(conditionSchema, 'Who may call it, by what `--claims` names: { "role": "admin" }.'),
  ),
  undoneBy: z.optional(about(statesSchema, 'The tools whose success takes this one back.')),
  once: z.optional(about(z.boolean(), 'The tool may succeed once, until that is undone.')),
  from: z.optional(
    about(text, 'For `once`, `limit` and `notAfter`: calls before this ISO time do not count.'),
  ),
  step: z.optional(
    about(
      z.boolean(),
      'Whether its calls are steps: one at a time, with an idempotency key. Default: true.',
    ),
  ),
  failure: z.optional(about(text, 'The tool whose success a failure of this one counts as.')),
  ...renamed,
  retries: z.optional(
    about(z.int().check(z.minimum(1)), 'How many failures go before `failure`. Default: 0.'),
  ),
  errors,
  ok,
  results,
  uncertain,
});

const orderSchema = (document: Record<string, unknown>, table: TableOf) =>
  z.strictObject({
    ...common,
    id,
    order: about(
      table(document.order, ruleSchema),
      'What each tool comes after, how often it may be called, and how much.',
    ),
    needs: z.optional(
      about(
        table(
          document.needs,
          z.union([...requirementForms, z.array(requirementSchema).check(z.minLength(1))]),
        ),
        'Requirements by name, for { "need": "signed_in" }. They may name each other.',
      ),
    ),
    outside: z.optional(
      about(
        table(
          document.outside,
          z.strictObject({ who: about(text, 'Who sends it: "a person in finance".') }),
        ),
        'What comes from outside by `runs.send()`, for { "outside": "approve" }. No call makes it.',
      ),
    ),
    limits: sharedLimits,
    results: z.optional(
      about(
        z.enum(['structured', 'text']),
        'What conditions read of results, unless a rule says otherwise. Default: "structured".',
      ),
    ),
  });

/** What the schema makes sure of, where the document has an order. */
interface OrderDocument {
  readonly id: string;
  readonly order: OrderRules;
  readonly needs?: OrderOptions['needs'];
  readonly outside?: OrderOptions['outside'];
  readonly results?: OrderOptions['results'];
  readonly limits?: OrderOptions['limits'];
  readonly sync?: MachineDocument['sync'];
}

/** What the schema makes sure of. */
interface MachineDocument {
  readonly id: string;
  readonly initial: string;
  readonly on?: Readonly<Record<string, z.output<typeof transitionSchema>>>;
  readonly states: Readonly<Record<string, z.output<typeof stateSchema>>>;
  readonly tools?: Readonly<Record<string, z.output<typeof toolSchema>>>;
  readonly prompts?: Readonly<Record<string, string | string[]>>;
  readonly resources?: Readonly<Record<string, string | string[]>>;
  readonly limits?: readonly SharedLimit[];
  readonly sync?: readonly z.output<typeof policySchema>[];
}

/** The names that the document gives, each with the same schema. */
const asGiven: TableOf = (names, value) =>
  isTable(names)
    ? z.strictObject(Object.fromEntries(Object.keys(names).map((name) => [name, value])))
    : z.custom(() => false, 'expected an object');

/** The JSON Schema of the format (draft 7, which every editor knows). */
export function gateJsonSchema(): object {
  const anyName: TableOf = (_, value) => z.record(z.string(), value);
  const machine = machineSchema({}, anyName);
  const workflow = z.union([machine, orderSchema({}, anyName)]);
  const schema = z.union([workflow, z.array(workflow).check(z.minLength(1))]);
  return {
    $id: 'https://unpkg.com/mcp-interlock-cli/gate.schema.json',
    title: 'A gate of mcp-interlock',
    ...z.toJSONSchema(schema, { target: 'draft-7', io: 'input' }),
  };
}

/**
 * Makes gates of a JSON document: one workflow, or an array of them.
 *
 * @throws Failure or InterlockError naming the place, the wrong value and the right ones
 */
export function parseWorkflows(json: string): {
  gates: StateMachineGate[];
  sync: StateSyncConfig | undefined;
} {
  const given = parseJson(json);
  const documents: readonly unknown[] = Array.isArray(given) ? given : [given];
  if (documents.length === 0) throw new Failure('expected a workflow, got an empty array');
  const parsed = documents.map((document, index) =>
    parseDocument(
      documents.length > 1 ? `workflow ${index + 1} of the file` : 'the workflow',
      document,
    ),
  );
  const policies = parsed.flatMap(({ sync = [] }) => sync);
  return {
    gates: parsed.map(gateOf),
    sync: policies.length === 0 ? undefined : { policies },
  };
}

function parseDocument(what: string, document: unknown): MachineDocument | OrderDocument {
  if (!isTable(document))
    throw new Failure(`${what}: expected an object, got ${showValue(document)}`);
  // The gate gets the document as it is: what the schema gives back has lost each `__proto__`.
  if ('order' in document) {
    parseOptions(what, () => orderSchema(document, asGiven), document);
    return document as unknown as OrderDocument;
  }
  parseOptions(what, () => machineSchema(document, asGiven), document);
  return document as unknown as MachineDocument;
}

function gateOf(document: MachineDocument | OrderDocument): StateMachineGate {
  if ('order' in document) {
    const { id, order, needs, outside, results, limits } = document;
    return StateMachineGate.fromOrder(order, { id, needs, outside, results, limits });
  }
  const { id, initial, on, states, tools = {}, prompts = {}, resources = {}, limits } = document;
  const gate = new StateMachineGate<string, string>({ id, initial, on, states }, { limits });
  const events = new Set(
    [{ on }, ...Object.values(states)].flatMap((each) => Object.keys(each.on ?? {})),
  );
  for (const [name, tool] of Object.entries(tools))
    for (const { states: where, ...options } of bindingsOf(tool)) {
      for (const outcome of ['success', 'failure'] as const)
        checkEvent(`tools.${name}.${outcome}`, options[outcome], events);
      gate.bindTool(name, where, options);
    }
  for (const [name, where] of Object.entries(prompts)) gate.bindPrompt(name, where);
  for (const [uri, where] of Object.entries(resources)) gate.bindResource(uri, where);
  return gate;
}

function bindingsOf(tool: z.output<typeof toolSchema>): readonly z.output<typeof bindingSchema>[] {
  if (typeof tool === 'string') return [{ states: tool }];
  if (!Array.isArray(tool)) return [tool];
  const states = tool.filter((each) => typeof each === 'string');
  return states.length > 0 ? [{ states }] : tool.filter((each) => typeof each !== 'string');
}

/** The library refuses such an event too, but knows no place of the document. */
function checkEvent(place: string, event: string | undefined, events: ReadonlySet<string>): void {
  if (event === undefined || events.has(event)) return;
  throw new Failure(
    `${place}: no state handles the event ${showValue(event)}, ${rightNames(event, events)}`,
  );
}
