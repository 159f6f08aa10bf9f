/**
 * What the console logs where the app has no `onError`. Hides that an outage of a store or a bus
 * fails each call of its time.
 */

/** The names of the errors by which a store or a bus says that it cannot be asked. */
const OUTAGES: readonly string[] = ['StoreUnavailable', 'BusUnavailable'];

/** An outage is over after this long without such an error, in milliseconds. */
const CALM_MS = 10_000;

/** How long the errors of an outage are only counted: its cause may become another one. */
const LONG_MS = 60_000;

interface Outage {
  count: number;
  readonly since: number;
  /** When it failed last. */
  until: number;
  readonly timer: NodeJS.Timeout;
}

/**
 * Makes the default `onError`. It writes each error to the console. Of an outage it writes the
 * first one, and once that is over one line with the count of the others.
 */
export function consoleLog(): (error: unknown) => void {
  const outages = new Map<string, Outage>();
  const end = (name: string, { count, since, until }: Outage): void => {
    outages.delete(name);
    if (count === 1) return;
    const seconds = Math.round((until - since) / 1_000);
    console.error(`${name}: ${count - 1} more like the first, within ${seconds} s`);
  };
  return (error) => {
    const name = error instanceof Error ? error.name : '';
    const outage = outages.get(name);
    const isLong = outage !== undefined && Date.now() - outage.since >= LONG_MS;
    if (outage !== undefined && !isLong) {
      outage.count++;
      outage.until = Date.now();
      outage.timer.refresh();
      return;
    }
    if (outage !== undefined) {
      clearTimeout(outage.timer);
      end(name, outage);
    }
    console.error(error);
    if (!OUTAGES.includes(name)) return;
    const begun: Outage = {
      count: 1,
      since: Date.now(),
      until: Date.now(),
      // Else the process could not end while an outage may go on.
      timer: setTimeout(() => end(name, begun), CALM_MS).unref(),
    };
    outages.set(name, begun);
  };
}
