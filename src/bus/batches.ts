import { withinDeadline } from './deadline.ts';

interface Waiting {
  readonly message: string;
  resolve(): void;
  reject(cause: unknown): void;
}

const MAX_BATCH = 100;

/**
 * Sends one batch at a time, with whatever came while the one before it was on its way. A failure
 * fails all that wait: with a server that does not answer they would only grow in number.
 */
export function inBatches(
  send: (messages: string[]) => Promise<unknown>,
  deadlineMs: number,
): (message: string) => Promise<void> {
  const waiting: Waiting[] = [];
  let sending = false;

  async function sendAll(): Promise<void> {
    sending = true;
    while (waiting.length > 0) {
      const batch = takeBatch(waiting);
      try {
        await withinDeadline(send([...batch.keys()]), deadlineMs);
        for (const { resolve } of batch.values()) resolve();
      } catch (cause) {
        for (const { reject } of [...batch.values(), ...waiting.splice(0)]) reject(cause);
      }
    }
    sending = false;
  }

  return (message) =>
    new Promise((resolve, reject) => {
      waiting.push({ message, resolve, reject });
      if (!sending) void sendAll();
    });
}

/** No message twice, since PostgreSQL delivers equal ones of a transaction once. */
function takeBatch(waiting: Waiting[]): Map<string, Waiting> {
  const batch = new Map<string, Waiting>();
  for (const next of waiting) {
    if (batch.size === MAX_BATCH || batch.has(next.message)) break;
    batch.set(next.message, next);
  }
  waiting.splice(0, batch.size);
  return batch;
}
