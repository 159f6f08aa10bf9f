import { randomBytes } from 'node:crypto';
import {
  acceptedContent,
  type CallToolResult,
  CLIENT_CAPABILITIES_META_KEY,
  type ClientCapabilities,
  createRequestStateCodec,
  type InputRequests,
  type InputRequiredResult,
  inputRequired,
  type McpServer,
  type ServerContext,
} from '@modelcontextprotocol/server';
import * as z from 'zod';
import { form } from './forms.ts';
import { text } from './tools.ts';

/** Where a call of several rounds stands. It travels through the client, and so it is signed. */
interface RoundState {
  readonly round: number;
  readonly name?: string | undefined;
}

export const requestStates = createRequestStateCodec<RoundState>({ key: randomBytes(32) });

/** Answers of the client, as they came with the retry. */
class Answers {
  readonly #responses: Record<string, unknown> | undefined;

  constructor({ mcpReq }: ServerContext) {
    this.#responses = mcpReq.inputResponses;
  }

  get any(): boolean {
    return this.#responses !== undefined;
  }

  accepted(key: string): Record<string, unknown> | undefined {
    return acceptedContent(this.#responses, key);
  }

  name(key = 'user_name'): string | undefined {
    const name = this.accepted(key)?.name;
    return typeof name === 'string' ? name : undefined;
  }

  sampled(key: string): string | undefined {
    return (this.#responses?.[key] as { content?: { text?: string } } | undefined)?.content?.text;
  }

  roots(key = 'client_roots'): { uri: string }[] | undefined {
    const roots = (this.#responses?.[key] as { roots?: { uri: string }[] } | undefined)?.roots;
    return Array.isArray(roots) ? roots : undefined;
  }
}

type Round = CallToolResult | InputRequiredResult;

const askName = elicit('What is your name?', { name: { type: 'string' } });
const askConfirmation = elicit('Please confirm', { ok: { type: 'boolean' } });
const askRoots = inputRequired.listRoots();

/** SEP-2322: tools and a prompt that need an answer of the client before they have a result. */
export function registerRounds(server: McpServer): void {
  const description = 'Asks the client first.';
  for (const [name, play] of Object.entries(ROUNDS)) {
    const config = { description, inputSchema: z.object({}) };
    server.registerTool(`test_input_required_result_${name}`, config, (_args, context) =>
      play(new Answers(context), context),
    );
  }
  const config = { description, argsSchema: z.object({}) };
  server.registerPrompt('test_input_required_result_prompt', config, (_args, context) => {
    const said = new Answers(context).accepted('user_context')?.context;
    if (said === undefined) {
      const user_context = elicit('What context?', { context: { type: 'string' } });
      return inputRequired({ inputRequests: { user_context } });
    }
    const content = { type: 'text' as const, text: `Use the following context: ${said}` };
    return { messages: [{ role: 'user', content }] };
  });
}

type Play = (answers: Answers, context: ServerContext) => Round | Promise<Round>;

/** A state that was tampered with does not come this far: the server's `verify` refuses it. */
const confirm: Play = (answers, context) => {
  const isConfirmed = answers.accepted('confirm') !== undefined && stateOf(context) !== undefined;
  return isConfirmed
    ? done('state-ok, integrity-ok')
    : ask({ confirm: askConfirmation }, { round: 1 });
};

const ROUNDS: Readonly<Record<string, Play>> = {
  elicitation(answers) {
    const name = answers.name();
    return name === undefined ? ask({ user_name: askName }) : done(`Hello, ${name}!`);
  },

  sampling(answers) {
    const capital = answers.sampled('capital_question');
    if (capital !== undefined) return done(`Sampling response: ${capital}`);
    return ask({ capital_question: sample('What is the capital of France?') });
  },

  list_roots(answers) {
    const roots = answers.roots();
    if (roots === undefined) return ask({ client_roots: askRoots });
    return done(
      `Client exposed ${roots.length} root(s): ${roots.map(({ uri }) => uri).join(', ')}`,
    );
  },

  request_state: confirm,
  tampered_state: confirm,

  multiple_inputs(answers) {
    const [name, greeting, roots] = [answers.name(), answers.sampled('greeting'), answers.roots()];
    if (name !== undefined && greeting !== undefined && roots !== undefined)
      return done(`${greeting} ${name}, ${roots.length} root(s)`);
    const greetingRequest = sample('Generate a greeting');
    return ask(
      { user_name: askName, greeting: greetingRequest, client_roots: askRoots },
      { round: 1 },
    );
  },

  multi_round(answers, context) {
    const state = stateOf(context);
    if (state === undefined) return ask({ step1: askName }, { round: 1 });
    const askColor = elicit('What is your favorite color?', { color: { type: 'string' } });
    if (state.round === 1)
      return ask({ step2: askColor }, { round: 2, name: answers.name('step1') });
    return done(`${state.name} likes ${answers.accepted('step2')?.color}`);
  },

  capabilities(answers, context) {
    if (answers.any) return done('Answered.');
    const { elicitation, sampling, roots } = capabilitiesOf(context);
    return ask({
      ...(elicitation && { user_name: askName }),
      ...(sampling && { greeting: sample('Generate a greeting') }),
      ...(roots && { client_roots: askRoots }),
    });
  },
};

function stateOf({ mcpReq }: ServerContext): RoundState | undefined {
  return mcpReq.requestState<RoundState>();
}

/**
 * What the client declared with the request itself; the SDK's type of the envelope has no members.
 */
function capabilitiesOf({ mcpReq }: ServerContext): ClientCapabilities {
  const envelope: { [CLIENT_CAPABILITIES_META_KEY]?: ClientCapabilities } = mcpReq.envelope ?? {};
  return envelope[CLIENT_CAPABILITIES_META_KEY] ?? {};
}

async function ask(inputRequests: InputRequests, state?: RoundState): Promise<Round> {
  if (state === undefined) return inputRequired({ inputRequests });
  return inputRequired({ inputRequests, requestState: await requestStates.mint(state) });
}

function elicit(message: string, properties: Record<string, unknown>) {
  return inputRequired.elicit({
    message,
    requestedSchema: form(properties, Object.keys(properties)),
  });
}

function sample(prompt: string) {
  const messages = [{ role: 'user' as const, content: { type: 'text' as const, text: prompt } }];
  return inputRequired.createMessage({ messages, maxTokens: 100 });
}

function done(said: string): CallToolResult {
  return { content: text(said) };
}
