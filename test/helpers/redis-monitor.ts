import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';

/**
 * The names of the commands that clients send to a server while `action` runs, without those that
 * scripts call.
 */
export async function commandsDuring(
  url: string,
  action: () => Promise<unknown>,
): Promise<string[]> {
  const sender = new Redis(url);
  await sender.ping();
  const monitor = await sender.monitor();
  const names: string[] = [];
  const last = randomUUID();
  const seenAll = new Promise<void>((resolve) => {
    monitor.on('monitor', (_time: string, args: string[], source: string) => {
      if (args.includes(last)) resolve();
      else if (source !== 'lua') names.push((args[0] ?? '').toUpperCase());
    });
  });
  try {
    await action();
    await sender.echo(last);
    await seenAll;
  } finally {
    monitor.disconnect();
    sender.disconnect();
  }
  return names;
}
