import express from 'express';
import { memoryStore, type StateMachineGate, sessionStore } from 'mcp-interlock';
import { runsOf } from 'mcp-interlock/runs';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { listen, type Served } from '../../../test/helpers/serve.ts';
import { inspector } from '../src/index.ts';
import { openBrowser, seriousFaults, type Viewer, view } from './browser.ts';
import { put } from './site.ts';
import { claimGate, plantGate, tripChart, tripRules } from './workflows.ts';

const SIZES = [
  [1440, 900],
  [1024, 768],
  [390, 844],
] as const;

/** Where runs are, the busiest state last. */
const RUNS = {
  'insurance-claim': ['draft', 'waiting_for_documents', 'assessed', 'assessed'],
  plant: ['station_1_prepare', 'station_3_run', 'station_7_measure', 'station_7_measure'],
  'trip-chart': ['planning', 'booking.(flight.held|hotel.paid|car.open)'],
};
/** What the run of rules has done. */
const DONE = ['search_flights', 'hold_flight', 'search_hotels', 'hold_hotel', 'quote_trip'];

let browser: Browser;
let server: Served;
/** By width: opened once, since each takes a second. */
const viewers = new Map<number, Viewer>();

beforeAll(async () => {
  browser = await openBrowser();
  const store = memoryStore();
  const machines = [claimGate(), plantGate(), tripChart()] as StateMachineGate[];
  const rules = tripRules() as StateMachineGate;
  const gates = [...machines, rules];
  for (const gate of machines)
    for (const [at, state] of RUNS[gate.id as keyof typeof RUNS].entries())
      await put(store, `${gate.id}-${at}`, state, { workflow: gate.id, from: gate.currentState });
  const facts = DONE.map((tool) => ({ tool }));
  await store.open('trip-rules-0', {}, 3_600_000);
  await runsOf(rules, { store }).begin('trip-rules-0', { facts });
  const quiet = { onError: () => {}, onWarning: () => {} };
  const runs = gates.map((gate) => runsOf(gate, { sessions: sessionStore({ store, ...quiet }) }));
  const authorize = () => ({ read: true, write: true, keys: true, actor: 'kim' }) as const;
  const app = express();
  app.use('/inspector', inspector({ runs, authorize, onError: () => {} }));
  server = await listen(app);
});

afterEach(() => {
  expect([...viewers.values()].flatMap(({ faults }) => faults)).toEqual([]);
});

afterAll(async () => {
  await browser?.close();
  await server?.close();
});

/** Opens a workflow, and shows its diagram where there is room for one part only. */
async function open(workflow: string, [width, height]: readonly [number, number]): Promise<Page> {
  const url = new URL('/inspector/', server.url).href;
  const look = { width, height, reducedMotion: 'reduce' } as const;
  const viewer = viewers.get(width) ?? (await view(browser, url, look));
  viewers.set(width, viewer);
  const { page } = viewer;
  await page.keyboard.press('Escape');
  await page.locator('.workflows button', { hasText: workflow }).click();
  await showPart(page, 'Diagram');
  await page.getByRole('group', { name: `Diagram of ${workflow}` }).waitFor();
  return page;
}

async function showPart(page: Page, part: string): Promise<void> {
  const views = page.locator('.views button', { hasText: part });
  if (await views.isVisible()) await views.click();
}

interface Seen {
  /** Where the diagram's frame is on the screen. */
  readonly frame: Rect;
  readonly states: readonly (Rect & { readonly id: string; readonly inner: boolean })[];
  readonly labels: readonly Rect[];
  /** The smallest letters on the screen, in pixels. */
  readonly letters: number;
  readonly folded: readonly string[];
}

interface Rect {
  readonly left: number;
  readonly top: number;
  readonly right: number;
  readonly bottom: number;
}

/** In the page's own words: what of the diagram is where on the screen. */
const SEEN = `(() => {
  const rectOf = (element) => {
    const { left, top, right, bottom } = element.getBoundingClientRect();
    return { left, top, right, bottom };
  };
  const svg = document.querySelector('.canvas > svg');
  const scale = svg.getScreenCTM().a;
  const shown = [...svg.querySelectorAll('text, tspan')].filter((each) =>
    each.textContent.trim() !== '' && each.getBoundingClientRect().width > 0);
  const states = [...svg.querySelectorAll('.state')];
  return {
    frame: rectOf(document.querySelector('.canvas')),
    states: states.map((state) => ({
      id: state.dataset.state,
      inner: !/ (compound|parallel) /.test(state.getAttribute('class') + ' '),
      ...rectOf(state.querySelector('.shape')),
    })),
    labels: [...svg.querySelectorAll('.label')].filter((each) => each.getBoundingClientRect().width > 0)
      .map((label) => rectOf(label.querySelector('rect'))),
    letters: Math.min(...shown.map((each) => parseFloat(getComputedStyle(each).fontSize) * scale)),
    folded: states.filter((state) => state.classList.contains('folded'))
      .map((state) => state.querySelector('.title').textContent),
  };
})()`;

const seen = async (page: Page): Promise<Seen> => (await page.evaluate(SEEN)) as Seen;

function overlaps(a: Rect, b: Rect): boolean {
  const isBeside = a.right <= b.left + 0.5 || b.right <= a.left + 0.5;
  const isAbove = a.bottom <= b.top + 0.5 || b.bottom <= a.top + 0.5;
  return !isBeside && !isAbove;
}

function isWithin(inner: Rect, outer: Rect): boolean {
  return (
    inner.left >= outer.left - 1 &&
    inner.top >= outer.top - 1 &&
    inner.right <= outer.right + 1 &&
    inner.bottom <= outer.bottom + 1
  );
}

/** Boxes without others inside, and labels, may cover none of each other. */
function covered({ states, labels }: Seen): string[] {
  const parts = [
    ...states.filter(({ inner }) => inner).map((state) => ({ name: state.id, rect: state })),
    ...labels.map((rect, at) => ({ name: `label ${at}`, rect })),
  ];
  return parts.flatMap((a, at) =>
    parts.slice(at + 1).flatMap((b) => (overlaps(a.rect, b.rect) ? [`${a.name}/${b.name}`] : [])),
  );
}

describe('the diagram of a workflow', () => {
  for (const size of SIZES) {
    const at = `${size[0]} px wide`;

    it.each(['insurance-claim', 'plant'] as const)(
      `opens %s where runs are, with the start in view and to be read: ${at}`,
      async (workflow) => {
        const page = await open(workflow, size);
        const picture = await seen(page);
        expect(covered(picture)).toEqual([]);
        expect(picture.letters).toBeGreaterThanOrEqual(11);
        const inView = picture.states.filter((state) => isWithin(state, picture.frame));
        const [start, busiest] = [RUNS[workflow][0], RUNS[workflow].at(-1)];
        expect(inView.map(({ id }) => id)).toEqual(expect.arrayContaining([start, busiest]));
        expect(picture.folded.join()).toMatch(/more states/);
        if (workflow === 'plant') expect(await seriousFaults(page)).toEqual([]);
      },
    );

    it(`keeps regions beside each other, each with its runs: ${at}`, async () => {
      const page = await open('trip-chart', size);
      const picture = await seen(page);
      expect(covered(picture)).toEqual([]);
      expect(picture.letters).toBeGreaterThanOrEqual(11);
      const isRegion = (id: string) => /^…?booking\.(flight|hotel|car)$/.test(id);
      const regions = picture.states.filter(({ id }) => isRegion(id));
      expect(regions).toHaveLength(3);
      for (const [index, region] of regions.entries())
        for (const other of regions.slice(index + 1)) expect(overlaps(region, other)).toBe(false);
      const start = picture.states.find(({ id }) => id === 'planning');
      expect(start && isWithin(start, picture.frame)).toBe(true);
    });

    it(`says of rules what is done, what is next and what is missing: ${at}`, async () => {
      const page = await open('trip-rules', size);
      await showPart(page, 'Runs');
      await page.locator('.row').click();
      await page.getByRole('article').waitFor();
      await showPart(page, 'Diagram');
      await page.getByText('5 of 7 done').waitFor();
      expect(await page.locator('.progress').textContent()).toBe(
        '5 of 7 done · next: accept_terms',
      );
      const box = (id: string) => page.locator(`[data-state="${id}"]`);
      await expect.poll(() => box('accept_terms').locator('.count').textContent()).toBe('next');
      const picture = await seen(page);
      expect(covered(picture)).toEqual([]);
      expect(picture.letters).toBeGreaterThanOrEqual(11);
      if (picture.folded.length > 0) return;
      expect(await box('quote_trip').locator('.count').textContent()).toBe('done');
      expect(await box('pay_trip').locator('.count').textContent()).toBe('needs 1');
      await page.getByRole('button', { name: /^pay_trip, tool, needs accept_terms/ }).waitFor();
    });
  }

  it('unfolds what is pressed, shows all of it, and is again as it opened', async () => {
    const page = await open('insurance-claim', SIZES[0]);
    const before = await seen(page);
    const ids = async () => (await seen(page)).states.map(({ id }) => id);
    expect(await ids()).not.toContain('inspection_scheduled');
    await page.locator('.state.folded', { hasText: 'inspection_scheduled' }).click();
    await expect.poll(ids).toContain('inspection_scheduled');
    const whole = page.getByRole('button', { name: 'Show all of the diagram' });
    await whole.click();
    await expect.poll(async () => (await seen(page)).folded).toEqual([]);
    const all = await seen(page);
    expect(all.states).toHaveLength(14);
    expect(all.states.every((state) => isWithin(state, all.frame))).toBe(true);
    // What would be too small to be read is not shown.
    expect(all.letters).toBeGreaterThanOrEqual(10.99);
    await whole.click();
    await expect.poll(async () => (await seen(page)).folded).toEqual(before.folded);
    await page.locator('.state.folded', { hasText: 'inspection_scheduled' }).click();
    await expect.poll(ids).toContain('inspection_scheduled');
  });

  it('shows where a picked run is, though that was folded', async () => {
    const page = await open('plant', SIZES[2]);
    expect((await seen(page)).states.map(({ id }) => id)).not.toContain('station_3_measure');
    await showPart(page, 'Runs');
    await page.locator('.row', { hasText: 'station_3_run' }).click();
    await page.getByRole('article').waitFor();
    await showPart(page, 'Diagram');
    const box = page.locator('[data-state="station_3_run"]');
    await expect.poll(() => box.getAttribute('class')).toContain('active');
    const picture = await seen(page);
    const here = picture.states.find(({ id }) => id === 'station_3_run');
    expect(here && isWithin(here, picture.frame)).toBe(true);
    expect(covered(picture)).toEqual([]);
  });
});
