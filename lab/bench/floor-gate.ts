/**
 * The floor: the least that a gate can cost. A gate in one file that does what the benchmark's
 * requests need and keeps none of the promises. It claims a run under a token, reads the answer of
 * a step, commits what follows under that token, and filters lists. It knows stateful servers that
 * answer in JSON, behind `express.json()`, which has parsed each request for the bare server too.
 */
import { randomUUID } from 'node:crypto';
import type { RequestHandler, Response } from 'express';

interface Bound {
  readonly states: readonly string[];
  readonly to?: string;
}

interface Run {
  readonly state: string;
  readonly version: number;
  readonly claim?: string;
}

export type FloorBindings = Readonly<Record<string, Bound>>;

export function floorGate(initial: string, bindings: FloorBindings): RequestHandler {
  const bound = new Map(Object.entries(bindings));
  const runs = new Map<string, Run>();
  return (req, res, next) => {
    const { method, id, params } = req.body ?? {};
    const session = String(req.headers['mcp-session-id']);
    const run = runs.get(session) ?? { state: initial, version: 0 };
    if (method === 'tools/list') return filterList(res, bound, run.state, next);
    const binding = method === 'tools/call' ? bound.get(params?.name) : undefined;
    if (binding === undefined) return next();
    if (!binding.states.includes(run.state)) return refuse(res, id, params.name);
    const { to } = binding;
    if (to === undefined) return next();
    if (run.claim !== undefined) return refuse(res, id, params.name);
    const claim = randomUUID();
    runs.set(session, { ...run, claim });
    // The run moves before the client sees the answer.
    onBody(res, (body) => {
      const { result } = JSON.parse(body);
      const now = runs.get(session);
      if (now?.claim !== claim) return body;
      const hasMoved = result !== undefined && result.isError !== true;
      const { state, version } = now;
      runs.set(session, hasMoved ? { state: to, version: version + 1 } : { state, version });
      return body;
    });
    next();
  };
}

function refuse(res: Response, id: unknown, tool: string): void {
  const content = [{ type: 'text', text: `[System: ${tool} is not available.]` }];
  const body = JSON.stringify({ jsonrpc: '2.0', id, result: { content, isError: true } });
  res.writeHead(200, { 'content-type': 'application/json' }).end(body);
}

function filterList(
  res: Response,
  bound: ReadonlyMap<string, Bound>,
  state: string,
  next: () => void,
): void {
  onBody(res, (body) => {
    const message = JSON.parse(body);
    message.result.tools = message.result.tools.filter(
      ({ name }: { readonly name: string }) => bound.get(name)?.states.includes(state) ?? true,
    );
    return JSON.stringify(message);
  });
  next();
}

/** Holds the head and the body back until both are complete. */
function onBody(res: Response, change: (body: string) => string): void {
  const { writeHead, end } = res;
  const chunks: Buffer[] = [];
  let head: readonly unknown[] = [];
  res.writeHead = (...given: readonly unknown[]) => {
    head = given;
    return res;
  };
  res.write = (chunk: string | Uint8Array) => {
    chunks.push(Buffer.from(chunk));
    return true;
  };
  res.end = ((chunk?: unknown) => {
    if (typeof chunk === 'string' || chunk instanceof Uint8Array) chunks.push(Buffer.from(chunk));
    const body = change(Buffer.concat(chunks).toString());
    const headers: Record<string, string> = { ...(head[1] as object) };
    delete headers['content-length'];
    Reflect.apply(writeHead, res, [head[0] ?? 200, headers]);
    return Reflect.apply(end, res, [body]);
  }) as typeof end;
}
