import { expect } from 'vitest';
import type { NotificationBus } from '../../src/notify/bus.ts';

/** All that a listener has heard, in order. */
export interface Hearing {
  readonly heard: string[];
  stop(): Promise<void>;
}

export async function listenTo(bus: NotificationBus): Promise<Hearing> {
  const heard: string[] = [];
  const stop = await bus.subscribe((message) => heard.push(message));
  return { heard, stop };
}

/** Sends a last message, and resolves to those that were heard before it. */
export async function heardBefore(
  last: string,
  bus: NotificationBus,
  { heard }: Hearing,
): Promise<string[]> {
  await bus.publish(last);
  await expect.poll(() => heard).toContain(last);
  return heard.slice(0, heard.indexOf(last));
}

/** Publishes until the listener hears it, as after an outage. */
export async function heardAtLast(
  bus: NotificationBus,
  ...hearings: readonly Hearing[]
): Promise<void> {
  let sent = 0;
  const arrives = async (): Promise<boolean> => {
    sent += 1;
    const message = `"again ${sent}"`;
    await bus.publish(message).catch(() => {});
    return expect
      .poll(() => hearings.every(({ heard }) => heard.includes(message)), {
        timeout: 100,
        interval: 5,
      })
      .toBe(true)
      .then(
        () => true,
        () => false,
      );
  };
  await expect.poll(arrives, { timeout: 20_000 }).toBe(true);
}
