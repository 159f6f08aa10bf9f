import { setTimeout } from 'node:timers/promises';
import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js';
import { EVERY_ENUM, ONE_ANSWER, WITH_DEFAULTS } from './forms.ts';
import { AUDIO, IMAGE } from './media.ts';

/** What a handler may do beside answering, in the words of neither SDK. */
export interface CallContext {
  readonly progressToken: string | number | undefined;
  notify(method: string, params: Record<string, unknown>): Promise<void>;
  /** A request of the server to its client. */
  ask(method: AskedMethod, params: Record<string, unknown>): Promise<Record<string, unknown>>;
  /** Ends the answer's stream early, so that the client has to come back for the result. */
  closeStream(): void;
}

export type AskedMethod = 'sampling/createMessage' | 'elicitation/create';
export type Schema = { readonly type: 'object'; readonly [keyword: string]: unknown };
type Content = CallToolResult['content'];

export interface ToolDefinition {
  readonly name: string;
  readonly inputSchema: Schema;
  run(args: Record<string, unknown>, context: CallContext): Content | Promise<Content>;
}

/** Every server lists it and no client calls it: the idle gate binds it. */
export const NEVER_CALLED = 'never_called';

/**
 * The tools that the suite calls by these names in the session era; some of them in the other one
 * too.
 */
export const TOOLS: readonly ToolDefinition[] = [
  tool(NEVER_CALLED, () => text('called after all')),
  tool('test_simple_text', () => text('This is a simple text response for testing.')),
  tool('test_image_content', () => [{ type: 'image', data: IMAGE, mimeType: 'image/png' }]),
  tool('test_audio_content', () => [{ type: 'audio', data: AUDIO, mimeType: 'audio/wav' }]),
  tool('test_embedded_resource', () => [
    resource('embedded-resource', 'text/plain', 'An embedded resource.'),
  ]),
  tool('test_multiple_content_types', () => [
    ...text('Several kinds of content:'),
    { type: 'image', data: IMAGE, mimeType: 'image/png' },
    resource('mixed-content-resource', 'application/json', '{"test":"data","value":123}'),
  ]),
  tool('test_tool_with_logging', logThrice),
  tool('test_tool_with_progress', progressThrice),
  tool('test_error_handling', () => {
    throw new Error('This tool intentionally returns an error for testing');
  }),
  tool('test_reconnection', async (_args, context) => {
    context.closeStream();
    // Long enough for the client to find its stream closed without a result.
    await setTimeout(100);
    return text('Reconnected.');
  }),
  tool(
    'test_sampling',
    async ({ prompt }, { ask }) => {
      const messages = [{ role: 'user', content: { type: 'text', text: prompt } }];
      const { content } = await ask('sampling/createMessage', { messages, maxTokens: 100 });
      return text(`LLM response: ${(content as { text?: string }).text}`);
    },
    { properties: { prompt: { type: 'string' } }, required: ['prompt'] },
  ),
  tool('test_elicitation', ({ message }, context) => elicit(context, String(message), ONE_ANSWER), {
    properties: { message: { type: 'string' } },
    required: ['message'],
  }),
  tool('test_elicitation_sep1034_defaults', (_, context) =>
    elicit(context, 'Defaults', WITH_DEFAULTS),
  ),
  tool('test_elicitation_sep1330_enums', (_, context) => elicit(context, 'Enums', EVERY_ENUM)),
  tool('json_schema_2020_12_tool', (args) => text(JSON.stringify(args)), {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    $defs: {
      address: {
        $anchor: 'addressDef',
        type: 'object',
        properties: { street: { type: 'string' }, city: { type: 'string' } },
      },
    },
    properties: {
      name: { type: 'string' },
      address: { $ref: '#/$defs/address' },
      contactMethod: { type: 'string', enum: ['phone', 'email'] },
      phone: { type: 'string' },
      email: { type: 'string' },
    },
    allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
    if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
    // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
    then: { required: ['phone'] },
    else: { required: ['email'] },
    additionalProperties: false,
  }),
];

export function text(said: string): Array<{ type: 'text'; text: string }> {
  return [{ type: 'text', text: said }];
}

function tool(
  name: string,
  run: ToolDefinition['run'],
  schema: Record<string, unknown> = {},
): ToolDefinition {
  return { name, inputSchema: { type: 'object', ...schema }, run };
}

function resource(name: string, mimeType: string, content: string) {
  return {
    type: 'resource' as const,
    resource: { uri: `test://${name}`, mimeType, text: content },
  };
}

async function logThrice(
  _args: Record<string, unknown>,
  { notify }: CallContext,
): Promise<Content> {
  for (const data of ['Tool execution started', 'Tool processing data', 'Tool execution completed'])
    await notify('notifications/message', { level: 'info', data });
  return text('Logged.');
}

async function progressThrice(
  _args: Record<string, unknown>,
  context: CallContext,
): Promise<Content> {
  const { progressToken, notify } = context;
  // Who sent no token must not be told.
  for (const progress of progressToken === undefined ? [] : [0, 50, 100])
    await notify('notifications/progress', { progressToken, progress, total: 100 });
  return text(String(progressToken));
}

async function elicit(
  { ask }: CallContext,
  message: string,
  requestedSchema: Schema,
): Promise<Content> {
  const { action, content } = await ask('elicitation/create', { message, requestedSchema });
  return text(`User response: action=${action}, content=${JSON.stringify(content ?? {})}`);
}
