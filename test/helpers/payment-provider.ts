import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

/**
 * A payment provider, outside of every process that a test kills. It lists its requests, and
 * answers when the test lets it.
 */
export interface PaymentProvider {
  readonly url: string;
  /** The idempotency key of each request, in order. */
  readonly charges: readonly string[];
  /** It answers requests once this has resolved. */
  answerAfter(moment: Promise<void>): void;
  stop(): void;
}

export async function startPaymentProvider(): Promise<PaymentProvider> {
  const charges: string[] = [];
  let moment = Promise.resolve();
  const server = createServer(async (req, res) => {
    req.resume();
    charges.push(String(req.headers['idempotency-key']));
    await moment;
    res.end('{}');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/charges`,
    charges,
    answerAfter(next) {
      moment = next;
    },
    stop() {
      server.close();
      server.closeAllConnections();
    },
  };
}
