import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { draw } from '../app/layout.ts';
import type { Box, Drawing, Picture, Point, Rect } from '../app/picture.ts';

const leaf = (id: string): Box => ({ id, width: 90, height: 40 });

const PARALLEL: Drawing = {
  direction: 'right',
  boxes: [
    leaf('cart'),
    {
      ...leaf('order'),
      header: 30,
      children: [
        { ...leaf('billing'), header: 30, children: [leaf('due'), leaf('paid')] },
        { ...leaf('packing'), header: 30, children: [leaf('picking'), leaf('packed')] },
      ],
    },
    leaf('cancelled'),
  ],
  links: [
    ['cart', 'order'],
    ['due', 'paid'],
    ['picking', 'packed'],
    ['packed', 'cart'],
    ['order', 'cancelled'],
    ['due', 'cancelled'],
    ['order', 'packed'],
  ].map(([from = '', to = '']) => ({ id: `${from}-${to}`, from, to, width: 80, height: 20 })),
};

describe('the layout of diagrams', () => {
  it('stands regions beside each other, equally long', () => {
    const { boxes } = draw(PARALLEL);
    expect(boxes.billing?.x).toBe(boxes.packing?.x);
    expect(boxes.billing?.width).toBe(boxes.packing?.width);
    expect(overlap(boxes.billing, boxes.packing)).toBe(false);
  });

  it('runs from the first state on, and back where an arrow closes a circle', () => {
    const { boxes, links } = draw(PARALLEL);
    expect(boxes.cart?.x).toBeLessThan(boxes.order?.x ?? 0);
    expect(boxes.order?.x).toBeLessThan(boxes.cancelled?.x ?? 0);
    const back = links['packed-cart']?.points ?? [];
    expect(back[0]?.x).toBeGreaterThan(back.at(-1)?.x ?? 0);
  });

  it.each(['right', 'down'] as const)('draws whatever it is given: %s', (direction) => {
    const property = fc.property(drawings(direction), (drawing) => {
      const picture = draw(drawing);
      expect(faultsOf(drawing, picture)).toEqual([]);
    });
    fc.assert(property, { numRuns: 30 });
  });
});

/** Diagrams of up to three levels, with arrows between any two boxes of them. */
function drawings(direction: Drawing['direction']): fc.Arbitrary<Drawing> {
  const shape = fc.array(fc.array(fc.nat(3), { maxLength: 3 }), { minLength: 1, maxLength: 4 });
  return shape.chain((tops) => {
    const ids: string[] = [];
    const named = (id: string, children: readonly Box[] = []): Box => {
      ids.push(id);
      return { ...leaf(id), header: 30, children };
    };
    const boxes = tops.map((inner, a) =>
      named(
        `${a}`,
        inner.map((count, b) =>
          named(
            `${a}.${b}`,
            Array.from({ length: count }, (_, c) => named(`${a}.${b}.${c}`)),
          ),
        ),
      ),
    );
    const pair = fc.tuple(fc.constantFrom(...ids), fc.constantFrom(...ids));
    return fc.uniqueArray(pair, { maxLength: 12, selector: String }).map((pairs) => ({
      direction,
      boxes,
      links: pairs
        .filter(([from, to]) => from !== to)
        .map(([from, to]) => ({ id: `${from}→${to}`, from, to, width: 70, height: 20 })),
    }));
  });
}

function faultsOf({ boxes, links }: Drawing, picture: Picture): string[] {
  const faults: string[] = [];
  const whole = { x: 0, y: 0, width: picture.width, height: picture.height };
  const check = (siblings: readonly Box[], around: Rect): void => {
    for (const [at, { id, children = [] }] of siblings.entries()) {
      const rect = picture.boxes[id];
      if (rect === undefined || !isInside(rect, around)) faults.push(`${id} is not in its place`);
      for (const other of siblings.slice(at + 1))
        if (overlap(rect, picture.boxes[other.id])) faults.push(`${id} is over ${other.id}`);
      if (rect !== undefined) check(children, rect);
    }
  };
  check(boxes, whole);
  for (const { id, from, to } of links) {
    const points = picture.links[id]?.points ?? [];
    if (!touches(points[0], picture.boxes[from])) faults.push(`${id} does not begin at its box`);
    if (!touches(points.at(-1), picture.boxes[to])) faults.push(`${id} does not end at its box`);
    if (!points.every(({ x, y }) => Number.isFinite(x + y))) faults.push(`${id} leads nowhere`);
  }
  return faults;
}

function isInside(inner: Rect, outer: Rect): boolean {
  return (
    inner.x >= outer.x - 0.5 &&
    inner.y >= outer.y - 0.5 &&
    inner.x + inner.width <= outer.x + outer.width + 0.5 &&
    inner.y + inner.height <= outer.y + outer.height + 0.5
  );
}

function overlap(a: Rect | undefined, b: Rect | undefined): boolean {
  if (a === undefined || b === undefined) return false;
  const isBeside = a.x + a.width <= b.x + 0.5 || b.x + b.width <= a.x + 0.5;
  const isAbove = a.y + a.height <= b.y + 0.5 || b.y + b.height <= a.y + 0.5;
  return !isBeside && !isAbove;
}

/** Whether a point is on the border of a box. */
function touches(point: Point | undefined, rect: Rect | undefined): boolean {
  if (point === undefined || rect === undefined) return false;
  const { x, y } = point;
  const isOnX = near(x, rect.x) || near(x, rect.x + rect.width);
  const isOnY = near(y, rect.y) || near(y, rect.y + rect.height);
  const isWithin =
    x >= rect.x - 0.5 &&
    x <= rect.x + rect.width + 0.5 &&
    y >= rect.y - 0.5 &&
    y <= rect.y + rect.height + 0.5;
  return isWithin && (isOnX || isOnY);
}

function near(a: number, b: number): boolean {
  return Math.abs(a - b) < 0.5;
}
