import * as fc from 'fast-check';
import { type Host, startBare, startFetch, startParsed } from './hosts.ts';
import { type RawRequest, rawRequest, showRequest } from './raw-request.ts';
import { everyReading, type Got } from './readers.ts';
import { broken, type OpenTarget, type Target } from './target.ts';

/** In the state that every run is in here, no client may call these. */
const HIDDEN = ['cart.pay'];

/**
 * One request, two worlds: every reader that a server could have reads what reaches the server
 * behind the gate. Where the state hides a tool, no reader may find a call of it. Nor may one find
 * a step that the gate did not mark.
 */
export const differential: Target = {
  name: 'differential',
  what: 'no reader finds a gated call in what is forwarded that the gate did not judge',
  inputs: 100,
  async open(): Promise<OpenTarget> {
    const hosts = await Promise.all([startBare(), startParsed(), startFetch()]);
    return {
      property: fc.asyncProperty(rawRequest, async (request) => {
        for (const host of hosts) await judge(host, request);
      }),
      describe: showRequest,
      close: async () => {
        for (const host of hosts) await host.close();
      },
    };
  },
};

/** Breaks where a reader finds a call that the gate did not judge. */
export async function judge(host: Host, request: RawRequest): Promise<void> {
  const { got } = await host.send(request);
  for (const each of got) {
    const marked = marksIn(each);
    for (const { reader, name, action } of everyReading(each)) {
      const isHidden = HIDDEN.includes(name) || (name === 'cart' && action === 'pay');
      if (isHidden)
        broken(`${host.name} forwarded a call of ${name}, as one reads who takes ${reader}`);
      if (name === 'cart.add' && !marked.has(name)) {
        broken(
          `${host.name} forwarded a step that it did not judge, as one reads who takes ${reader}`,
        );
      }
    }
  }
}

/** The tools whose calls the gate has marked as steps. */
function marksIn({ body, parsed }: Got): Set<string> {
  try {
    const messages = [parsed ?? JSON.parse(body.toString())].flat() as {
      params?: { name?: string; _meta?: object };
    }[];
    const isMarked = (meta: object | undefined) =>
      Object.hasOwn(meta ?? {}, 'mcp-interlock/idempotencyKey');
    return new Set(
      messages.flatMap(({ params }) => (isMarked(params?._meta) ? [String(params?.name)] : [])),
    );
  } catch {
    return new Set();
  }
}
