import type { RefusalReason } from '../../src/index.ts';
import type { Endpoint, HttpAnswer } from './endpoint.ts';

/** What a client was told about its call. */
export type Answer =
  /** The handler's own result: `text` is what it returned. */
  | { readonly kind: 'done'; readonly text: string }
  | { readonly kind: 'refused'; readonly reason: RefusalReason }
  /** The tool ran or may have run, and its outcome is not recorded. */
  | { readonly kind: 'unknown' }
  /** The connection broke before the answer came. */
  | { readonly kind: 'broken' }
  /** The session could not be looked up. */
  | { readonly kind: 'unavailable' }
  /** Nothing that a client should ever be told here. */
  | { readonly kind: 'wrong'; readonly text: string };

interface ToolResult {
  readonly content?: readonly { readonly text?: string }[];
  readonly isError?: boolean;
  readonly _meta?: Record<string, { readonly reason?: RefusalReason } | undefined>;
}

const HANGS_AFTER_MS = 30_000;
let lastId = 0;

/** Starts a session. `undefined` where the server, or its store, was not there to do so. */
export async function openSession(endpoint: Endpoint): Promise<string | undefined> {
  const clientInfo = { name: 'torture', version: '1.0.0' };
  const params = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo };
  const answer = await post(endpoint, 'initialize', params, undefined);
  if (typeof answer !== 'object' || answer.status !== 200) return undefined;
  const session = answer.headers['mcp-session-id'];
  return typeof session === 'string' ? session : undefined;
}

export async function callTool(
  endpoint: Endpoint,
  session: string,
  name: string,
  args: { readonly step: number; readonly ms: number },
): Promise<Answer> {
  const answer = await post(endpoint, 'tools/call', { name, arguments: args }, session);
  if (answer === 'broken') return { kind: 'broken' };
  if (answer === 'hung') return { kind: 'wrong', text: `no answer within ${HANGS_AFTER_MS} ms` };
  if (answer.status === 503) return { kind: 'unavailable' };
  const wrong: Answer = { kind: 'wrong', text: `${answer.status} ${answer.body.slice(0, 300)}` };
  return answer.status === 200 ? (read(answer.body) ?? wrong) : wrong;
}

async function post(
  endpoint: Endpoint,
  method: string,
  params: object,
  session: string | undefined,
): Promise<HttpAnswer | 'broken' | 'hung'> {
  const message = { jsonrpc: '2.0', id: ++lastId, method, params };
  try {
    return await endpoint.post(message, session, HANGS_AFTER_MS);
  } catch (error) {
    return error instanceof DOMException && error.name === 'TimeoutError' ? 'hung' : 'broken';
  }
}

function read(body: string): Answer | undefined {
  const { result } = JSON.parse(body) as { result?: ToolResult };
  if (result === undefined) return undefined;
  const text = result.content?.[0]?.text ?? '';
  if (result.isError !== true) return { kind: 'done', text };
  const reason = result._meta?.['mcp-interlock/refusal']?.reason;
  if (reason !== undefined) return { kind: 'refused', reason };
  return result._meta?.['mcp-interlock/outcome'] === undefined ? undefined : { kind: 'unknown' };
}
