import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { BusUnavailable, type NotificationBus } from '../../src/notify/bus.ts';
import { few } from '../helpers/few.ts';
import { heardBefore, listenTo } from './hearing.ts';

export interface BusSetup {
  /** A bus on its own connection, like another instance of the app. */
  connect(onError: (error: unknown) => void): Promise<NotificationBus>;
  close(): Promise<void>;
}

const HOSTILE: Readonly<Record<string, string>> = {
  quotes: `{"a":"it's \\"quoted\\" and \\\\escaped\\\\"}`,
  SQL: `"'); DROP TABLE workflows; --"`,
  parameters: '"$1 %s :x {0}"',
  'an escaped NUL': JSON.stringify('a\0b'),
  'an escaped half of a surrogate pair': JSON.stringify('\ud83d'),
  'characters of every length': '"é€😀\u2028\u2029\u0085\u007f\ufeff"',
  'exactly 1 KiB': JSON.stringify(`ab${'€'.repeat(340)}`),
  'no character': '',
};

const REFUSED: Readonly<Record<string, string>> = {
  NUL: '"a\0b"',
  'a line break': '"a\nb"',
  'half of a surrogate pair': '"\ud83d"',
  'more than 1 KiB in UTF-8': JSON.stringify('€'.repeat(341)),
};

/** What every bus promises. A cluster keeps all of it but the order. */
export function describeBus(
  name: string,
  setUp: () => Promise<BusSetup>,
  { ordered = true } = {},
): void {
  describe(name, { timeout: 20_000 }, () => {
    const errors: unknown[] = [];
    const stops: (() => Promise<void>)[] = [];
    let setup: BusSetup;
    let here: NotificationBus;
    let there: NotificationBus;

    beforeEach(async () => {
      errors.length = 0;
      setup = await setUp();
      here = stoppable(await setup.connect((error) => errors.push(error)), stops);
      there = stoppable(await setup.connect((error) => errors.push(error)), stops);
    });
    afterEach(async () => {
      for (const stop of stops.splice(0)) await stop();
      await setup?.close();
    });

    it('carries a message to every listener of every instance, once', async () => {
      const hearings = [await listenTo(here), await listenTo(there), await listenTo(there)];
      await here.publish('"from here"');
      await there.publish('"from there"');
      for (const { heard } of hearings) {
        await expect.poll(() => heard.toSorted()).toEqual(['"from here"', '"from there"']);
      }
      expect(errors).toEqual([]);
    });

    if (ordered) {
      it('keeps the order of messages that the caller awaits one by one', async () => {
        const hearing = await listenTo(there);
        const messages = Array.from({ length: 200 }, (_, index) => JSON.stringify({ index }));
        for (const message of messages) await here.publish(message);
        expect(await heardBefore('"last"', here, hearing)).toEqual(messages);
      });
    }

    it('carries many messages at once without losing one', async () => {
      const hearing = await listenTo(there);
      const messages = Array.from({ length: 500 }, (_, index) => JSON.stringify({ index }));
      await Promise.all(messages.map((message) => here.publish(message)));
      await expect.poll(() => hearing.heard.length).toBe(500);
      expect(new Set(hearing.heard)).toEqual(new Set(messages));
    });

    it('carries equal messages as often as they are sent, also at once', async () => {
      const hearing = await listenTo(there);
      const messages = ['"a"', '"a"', '"b"', '"a"', '"b"'];
      await Promise.all(messages.map((message) => here.publish(message)));
      await expect.poll(() => hearing.heard.toSorted()).toEqual(messages.toSorted());
    });

    it.each(Object.entries(HOSTILE))('carries %s as it is', async (_name, message) => {
      const hearing = await listenTo(there);
      await here.publish(message);
      await expect.poll(() => hearing.heard).toEqual([message]);
    });

    it('carries anything that JSON.stringify() writes', async () => {
      const hearing = await listenTo(there);
      const short = fc.json({ maxDepth: 3 }).filter((text) => Buffer.byteLength(text) <= 1024);
      await fc.assert(
        fc.asyncProperty(short, async (message) => {
          hearing.heard.length = 0;
          await here.publish(message);
          await expect.poll(() => hearing.heard, { interval: 1 }).toEqual([message]);
        }),
        few(15),
      );
    });

    it.each(Object.entries(REFUSED))('refuses %s, and sends nothing', async (_name, message) => {
      const hearing = await listenTo(there);
      const refusal = await here.publish(message).catch((error: unknown) => error);
      expect(refusal).toBeInstanceOf(Error);
      expect(refusal).not.toBeInstanceOf(BusUnavailable);
      expect(await heardBefore('"last"', here, hearing)).toEqual([]);
    });

    it('does not call a listener that has unsubscribed, but the others', async () => {
      const [gone, kept, far] = [await listenTo(here), await listenTo(here), await listenTo(there)];
      await gone.stop();
      await gone.stop();
      await here.publish('"a"');
      await expect.poll(() => kept.heard).toEqual(['"a"']);
      await expect.poll(() => far.heard).toEqual(['"a"']);
      expect(gone.heard).toEqual([]);
    });

    it('calls a function twice that is subscribed twice, until both are unsubscribed', async () => {
      const heard: string[] = [];
      const listener = (message: string) => heard.push(message);
      const [stop] = [await here.subscribe(listener), await here.subscribe(listener)];
      await here.publish('"a"');
      await expect.poll(() => heard).toEqual(['"a"', '"a"']);
      await stop();
      await here.publish('"b"');
      await expect.poll(() => heard).toEqual(['"a"', '"a"', '"b"']);
    });

    it('listens again after its last listener has unsubscribed', async () => {
      const first = await listenTo(there);
      await first.stop();
      const second = await listenTo(there);
      await here.publish('"a"');
      await expect.poll(() => second.heard).toEqual(['"a"']);
      expect(first.heard).toEqual([]);
    });

    it('tells onError of a listener that throws, and harms no other listener', async () => {
      const fault = new Error('a listener threw');
      await here.subscribe(() => {
        throw fault;
      });
      const hearing = await listenTo(here);
      await there.publish('"a"');
      await expect.poll(() => hearing.heard).toEqual(['"a"']);
      await there.publish('"b"');
      await expect.poll(() => hearing.heard).toEqual(['"a"', '"b"']);
      expect(errors).toEqual([fault, fault]);
    });
  });
}

/** The same bus, which unsubscribes all its listeners at the end of a test. */
function stoppable(bus: NotificationBus, stops: (() => Promise<void>)[]): NotificationBus {
  return {
    publish: (message) => bus.publish(message),
    async subscribe(listener) {
      const stop = await bus.subscribe(listener);
      stops.push(stop);
      return stop;
    },
  };
}
