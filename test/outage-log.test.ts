import { afterEach, expect, it, vi } from 'vitest';
import { consoleLog } from '../src/doors/outage-log.ts';
import { StoreUnavailable } from '../src/step/store-calls.ts';

afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

it('writes the first error of an outage, and one line with the count of the others', () => {
  vi.useFakeTimers();
  const lines = vi.spyOn(console, 'error').mockImplementation(() => {});
  const log = consoleLog();
  const first = new StoreUnavailable('the store failed to claim');
  log(first);
  for (let times = 0; times < 20; times++) {
    for (let each = 0; each < 50; each++) log(new StoreUnavailable('the store failed to release'));
    vi.advanceTimersByTime(1_000);
  }
  expect(lines.mock.calls).toEqual([[first]]);
  const fault = new Error('a fault of the app');
  log(fault);
  log(fault);
  vi.advanceTimersByTime(10_000);
  const summary = 'StoreUnavailable: 1000 more like the first, within 19 s';
  expect(lines.mock.calls).toEqual([[first], [fault], [fault], [summary]]);
  log(first);
  vi.advanceTimersByTime(60_000);
  expect(lines.mock.calls).toHaveLength(5);
});
