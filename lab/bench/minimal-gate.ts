/**
 * The least that a gate can cost: a gate in one file that does what the benchmark's requests need
 * and keeps none of the promises. It claims and commits in memory, reads the answer of a step, and
 * filters lists. It knows stateful servers that answer in JSON, behind `express.json()`.
 */
import type { RequestHandler, Response } from 'express';

interface Bound {
  readonly states: readonly string[];
  readonly to?: string;
}

interface Run {
  state: string;
  version: number;
  claimed: boolean;
}

export type MinimalBindings = Readonly<Record<string, Bound>>;

export function minimalGate(initial: string, bindings: MinimalBindings): RequestHandler {
  const bound = new Map(Object.entries(bindings));
  const runs = new Map<string, Run>();
  return (req, res, next) => {
    const { method, id, params } = req.body ?? {};
    const session = String(req.headers['mcp-session-id']);
    let run = runs.get(session);
    if (run === undefined) {
      run = { state: initial, version: 0, claimed: false };
      runs.set(session, run);
    }
    if (method === 'tools/list') return filterList(res, bound, run.state, next);
    const binding = method === 'tools/call' ? bound.get(params?.name) : undefined;
    if (binding === undefined) return next();
    if (run.claimed || !binding.states.includes(run.state)) return refuse(res, id, params.name);
    if (binding.to === undefined) return next();
    run.claimed = true;
    commitStep(res, run, binding.to);
    next();
  };
}

function refuse(res: Response, id: unknown, tool: string): void {
  const content = [{ type: 'text', text: `[System: ${tool} is not available.]` }];
  const body = JSON.stringify({ jsonrpc: '2.0', id, result: { content, isError: true } });
  res.writeHead(200, { 'content-type': 'application/json' }).end(body);
}

/** The run moves before the client sees the answer. */
function commitStep(res: Response, run: Run, to: string): void {
  onBody(res, (body) => {
    const { result } = JSON.parse(body);
    run.claimed = false;
    if (result !== undefined && result.isError !== true) {
      run.state = to;
      run.version++;
    }
    return body;
  });
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
