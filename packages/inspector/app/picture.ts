/** What the page and the worker that lays diagrams out say to each other. */

/** A box that is to be placed, in pixels. */
export interface Box {
  readonly id: string;
  /** The least size; a box with children grows around them. */
  readonly width: number;
  readonly height: number;
  /** The first one is where the diagram of the children begins. */
  readonly children?: readonly Box[];
  /** The height of what is written above the children. Default 0. */
  readonly header?: number;
}

/** An arrow between two different boxes, with the size of its label. */
export interface Link {
  readonly id: string;
  readonly from: string;
  readonly to: string;
  readonly width: number;
  readonly height: number;
}

export type Direction = 'right' | 'down';

/** What the worker is asked. */
export interface Drawing {
  readonly boxes: readonly Box[];
  readonly links: readonly Link[];
  readonly direction: Direction;
}

export interface Point {
  readonly x: number;
  readonly y: number;
}

export interface Rect extends Point {
  readonly width: number;
  readonly height: number;
}

/** What it answers: the origin is the upper left corner. */
export interface Picture {
  readonly direction: Direction;
  readonly width: number;
  readonly height: number;
  readonly boxes: Readonly<Record<string, Rect>>;
  /** The points that the arrow goes through, and the middle of its label. */
  readonly links: Readonly<Record<string, { readonly points: Point[]; readonly label: Point }>>;
}

/** The arrow as the data of an SVG path: smooth, and in the diagram's way where it meets a box. */
export function pathOf(points: readonly Point[], direction: Direction): string {
  const [first, ...rest] = points;
  if (first === undefined) return '';
  let data = `M${at(first)}`;
  let from = first;
  for (const to of rest) {
    const middle = direction === 'right' ? (from.x + to.x) / 2 : (from.y + to.y) / 2;
    const bends = direction === 'right' ? Math.abs(from.y - to.y) : Math.abs(from.x - to.x);
    if (bends < 0.5) data += `L${at(to)}`;
    else if (direction === 'right')
      data += `C${at({ x: middle, y: from.y })} ${at({ x: middle, y: to.y })} ${at(to)}`;
    else data += `C${at({ x: from.x, y: middle })} ${at({ x: to.x, y: middle })} ${at(to)}`;
    from = to;
  }
  return data;
}

function at({ x, y }: Point): string {
  return `${Math.round(x * 10) / 10},${Math.round(y * 10) / 10}`;
}
