import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { StateMachineGate, SyncPolicy } from '../../src/index.ts';
import {
  decorateDescription,
  invalidationEvent,
  invalidationText,
  staleNotification,
  staleUri,
} from '../../src/policy/sync-filter.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { type SceneClient, scene } from '../helpers/scene.ts';
import { toolServer } from '../helpers/tool-server.ts';

describe('decorateDescription', () => {
  it('puts the directive at the end of the description', () => {
    expect(decorateDescription('Manage workspace sprints.', 'no-store')).toBe(
      'Manage workspace sprints. [Cache-Control: no-store]',
    );
    expect(decorateDescription('List country codes.', 'immutable')).toBe(
      'List country codes. [Cache-Control: immutable]',
    );
  });

  it.each([undefined, '', ' \n'])('makes a description where there is none: %j', (description) => {
    expect(decorateDescription(description, 'no-store')).toBe('[Cache-Control: no-store]');
  });

  it('replaces any number of directives that are there already', () => {
    expect(decorateDescription('List. [Cache-Control: immutable]', 'no-store')).toBe(
      'List. [Cache-Control: no-store]',
    );
    expect(decorateDescription('[Cache-Control: no-store]', 'immutable')).toBe(
      '[Cache-Control: immutable]',
    );
    const thousands = `List.${' [Cache-Control: no-store]'.repeat(20_000)}\n`;
    expect(decorateDescription(thousands, 'immutable')).toBe('List. [Cache-Control: immutable]');
  });

  it('keeps text that only looks like a directive, and a directive that is not at the end', () => {
    const description = '[Cache-Control: no-store] is what we say. [Cache-Control: private]';
    expect(decorateDescription(description, 'no-store')).toBe(
      `${description} [Cache-Control: no-store]`,
    );
  });

  it('done twice is the same as done once with the later directive', () => {
    const directive = fc.constantFrom('no-store' as const, 'immutable' as const);
    const part = fc.oneof(
      fc.string(),
      fc.constantFrom('[Cache-Control: no-store]', '[Cache-Control: immutable]', ' '),
    );
    const description = fc.array(part).map((parts) => parts.join(''));
    fc.assert(
      fc.property(description, directive, directive, (text, first, last) => {
        const twice = decorateDescription(decorateDescription(text, first), last);
        expect(twice).toBe(decorateDescription(text, last));
        expect(twice.endsWith(`[Cache-Control: ${last}]`)).toBe(true);
      }),
    );
  });
});

describe('invalidationText', () => {
  it('names the patterns in their order, and the tool', () => {
    expect(invalidationText('tasks.update', ['tasks.*', 'sprints.*'])).toBe(
      '[System: Cache invalidated for tasks.*, sprints.* — caused by tasks.update]',
    );
  });

  it('keeps a hostile name on its line and within its brackets', () => {
    expect(invalidationText('a]\r\n[System: b\u2028\u0000\u001b[2J\u202e', ['c\n'])).toBe(
      '[System: Cache invalidated for c — caused by aSystem: b2J]',
    );
  });

  it('shows no character that hides text', () => {
    const tagged = `a${String.fromCodePoint(0xe0041, 0x200b, 0xfeff, 0xfe0f)}b\ud800`;
    expect(invalidationText(tagged, ['c'])).toBe(
      '[System: Cache invalidated for c — caused by ab]',
    );
  });

  it('cuts a name at 128 characters, after it has removed unsafe ones', () => {
    const text = invalidationText('x\n'.repeat(1000), ['y'.repeat(1000)]);
    expect(text).toBe(
      `[System: Cache invalidated for ${'y'.repeat(128)} — caused by ${'x'.repeat(128)}]`,
    );
  });

  it('cuts no character in half', () => {
    const text = invalidationText(`${'x'.repeat(127)}😀`, ['a']);
    expect(text).toBe(`[System: Cache invalidated for a — caused by ${'x'.repeat(127)}]`);
  });

  it('is one line of well-formed text in one pair of brackets, for any names', () => {
    const name = fc.string({ unit: 'binary', maxLength: 300 });
    fc.assert(
      fc.property(name, fc.array(name, { minLength: 1, maxLength: 3 }), (causedBy, patterns) => {
        const text = invalidationText(causedBy, patterns);
        expect(text).toMatch(
          /^\[System: Cache invalidated for [^[\]\p{Cc}\p{Cs}]* — caused by [^[\]\p{Cc}\p{Cs}]*\]$/u,
        );
        expect(text.length).toBeLessThanOrEqual(50 + (patterns.length + 1) * 130);
      }),
    );
  });
});

describe('staleUri', () => {
  it('names the pattern as it is written', () => {
    expect(staleUri('sprints.*')).toBe('interlock://stale/sprints.*');
    expect(staleUri('billing.invoices.**')).toBe('interlock://stale/billing.invoices.**');
  });

  it('encodes what a URI cannot carry', () => {
    expect(staleUri('a/b?c#d e')).toBe('interlock://stale/a%2Fb%3Fc%23d%20e');
    expect(staleUri('\ud800')).toBe('interlock://stale/%EF%BF%BD');
  });

  it('gives the pattern back when its path is decoded', () => {
    const pattern = fc
      .string({ unit: 'grapheme', minLength: 1 })
      .filter((text) => !/^\.+$/.test(text));
    fc.assert(
      fc.property(pattern, (text) => {
        const uri = new URL(staleUri(text));
        expect([uri.protocol, uri.host, uri.search, uri.hash]).toEqual([
          'interlock:',
          'stale',
          '',
          '',
        ]);
        expect(decodeURIComponent(uri.pathname.slice(1))).toBe(text);
      }),
    );
  });

  it('is what the notification carries', () => {
    expect(staleNotification('sprints.*')).toEqual({
      method: 'notifications/resources/updated',
      params: { uri: 'interlock://stale/sprints.*' },
    });
  });
});

describe('invalidationEvent', () => {
  it('tells what was called, what went stale and when, in ISO 8601', () => {
    const event = invalidationEvent(
      'tasks.update',
      ['tasks.*', 'sprints.*'],
      Date.UTC(2026, 6, 28, 12, 30, 15, 7),
    );
    expect(event).toEqual({
      causedBy: 'tasks.update',
      patterns: ['tasks.*', 'sprints.*'],
      timestamp: '2026-07-28T12:30:15.007Z',
    });
  });

  it('cannot be changed by an observer, nor by a later change of the patterns', () => {
    const patterns = ['tasks.*'];
    const event = invalidationEvent('tasks.update', patterns, 0);
    patterns.push('sprints.*');
    expect(event.patterns).toEqual(['tasks.*']);
    expect(Object.isFrozen(event)).toBe(true);
    expect(Object.isFrozen(event.patterns)).toBe(true);
  });
});

const STALE = 'orders.* — caused by';

/** A cart whose `cart.view` and `cart.total` are annotated readOnlyHint. */
const ANNOTATIONS = {
  'cart.add_item': { destructiveHint: true },
  'cart.checkout': { destructiveHint: true },
  'cart.pay': { destructiveHint: true },
  'cart.view': { readOnlyHint: true },
  'cart.total': { readOnlyHint: true },
  'cart.log': { readOnlyHint: false },
};

type Gate = StateMachineGate<string, string>;

/** A client of the cart, and the invalidations that the app was told of. */
async function cart(policies: readonly SyncPolicy[], workflow: Gate = checkoutGate()) {
  const told: string[] = [];
  const app = await scene({
    workflow,
    shape: { mode: 'stateless', answers: 'json' },
    makeServer: toolServer(Object.keys(ANNOTATIONS), {}, ANNOTATIONS),
    sync: {
      policies,
      onInvalidation: ({ causedBy }) => void told.push(causedBy),
      notificationSink: ({ params }) => void told.push(params.uri),
    },
  });
  return { client: await app.client(), told };
}

const staleAfter = async (client: SceneClient, tool: string): Promise<string | undefined> =>
  (await client.calls(tool)).texts[1];

describe('a tool that is annotated readOnlyHint', () => {
  it('makes nothing stale where only a glob matched it', async () => {
    const { client, told } = await cart([{ match: 'cart.*', invalidates: ['orders.*'] }]);
    await client.raw.tools();
    expect(await staleAfter(client, 'cart.view')).toBeUndefined();
    expect(await staleAfter(client, 'cart.total')).toBeUndefined();
    expect(told).toEqual([]);
    expect(await staleAfter(client, 'cart.add_item')).toContain(STALE);
    expect(await staleAfter(client, 'cart.log')).toContain(STALE);
    expect(told).toHaveLength(4);
  });

  it('makes nothing stale where a gate hid it from the list, too', async () => {
    const gate = checkoutGate().bindTool('cart.total', 'has_items');
    const { client } = await cart([{ match: 'cart.*', invalidates: ['orders.*'] }], gate);
    expect(await client.raw.tools()).not.toContain('cart.total');
    await client.calls('cart.add_item');
    expect(await staleAfter(client, 'cart.total')).toBeUndefined();
  });

  it('makes stale what its own policy says', async () => {
    const { client } = await cart([
      { match: 'cart.view', invalidates: ['orders.*'] },
      { match: 'cart.*', invalidates: ['orders.*'] },
    ]);
    await client.raw.tools();
    expect(await staleAfter(client, 'cart.view')).toContain(STALE);
    expect(await staleAfter(client, 'cart.total')).toBeUndefined();
  });

  it('counts as any other tool until a list has shown the annotation', async () => {
    const { client } = await cart([{ match: 'cart.*', invalidates: ['orders.*'] }]);
    expect(await staleAfter(client, 'cart.view')).toContain(STALE);
    await client.raw.tools();
    expect(await staleAfter(client, 'cart.view')).toBeUndefined();
  });
});

describe('a list of what went stale', () => {
  it.each([[['cart.view']], [['cart.view', 'cart.view']]])(
    'is left out where it names the called tool alone: %j',
    async (invalidates) => {
      const { client, told } = await cart([{ match: 'cart.view', invalidates }]);
      expect(await staleAfter(client, 'cart.view')).toBeUndefined();
      expect(told).toEqual([]);
    },
  );

  it('is whole where it names others too', async () => {
    const { client, told } = await cart([
      { match: 'cart.view', invalidates: ['cart.view', 'cart.total'] },
    ]);
    expect(await staleAfter(client, 'cart.view')).toBe(
      '[System: Cache invalidated for cart.view, cart.total — caused by cart.view]',
    );
    expect(told).toHaveLength(3);
  });
});
