import { describe, expect, it } from 'vitest';
import { localBus } from '../../src/notify/bus.ts';
import { describeBus } from './describe-bus.ts';

describeBus('localBus()', async () => {
  const listeners: ((error: unknown) => void)[] = [];
  const bus = localBus({ onError: (error) => listeners.at(-1)?.(error) });
  return {
    connect: async (onError) => {
      listeners.push(onError);
      return bus;
    },
    close: async () => {},
  };
});

describe('localBus()', () => {
  it('calls no listener inside of the publisher’s call', async () => {
    const bus = localBus();
    const heard: string[] = [];
    await bus.subscribe((message) => heard.push(message));
    const published = bus.publish('"a"');
    expect(heard).toEqual([]);
    await published;
    expect(heard).toEqual(['"a"']);
  });

  it('shares nothing with another local bus', async () => {
    const heard: string[] = [];
    await localBus().subscribe((message) => heard.push(message));
    await localBus().publish('"a"');
    expect(heard).toEqual([]);
  });

  it('goes on where onError throws as well', async () => {
    const complaints: unknown[] = [];
    const { error } = console;
    console.error = (complaint: unknown) => complaints.push(complaint);
    const bus = localBus({
      onError: () => {
        throw new Error('onError threw');
      },
    });
    await bus.subscribe(() => {
      throw new Error('a listener threw');
    });
    await bus.publish('"a"').finally(() => {
      console.error = error;
    });
    expect(complaints.map(String)).toEqual(['Error: onError threw']);
  });

  it('refuses an onError that is no function', () => {
    expect(() => localBus({ onError: 'console' as never })).toThrow(/onError: expected a function/);
  });

  it('names an unknown option with the nearest right one', () => {
    expect(() => localBus({ onErorr: () => {} } as never)).toThrow(
      /"onErorr", did you mean "onError"/,
    );
  });
});
