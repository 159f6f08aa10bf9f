/**
 * Where the boxes and arrows of a diagram stand. Hides the layout library, and how arrows cross the
 * borders of nested boxes. The library places the children of one box at a time. A box within a box
 * is one big node to it, and an arrow that crosses a border has a port there.
 *
 * All within is computed as if the diagram ran from left to right: `along` is the way it runs, and
 * `across` is the other one.
 */
import { type EdgeLabel, Graph, type GraphLabel, layout, type NodeLabel } from '@dagrejs/dagre';
import type { Box, Direction, Drawing, Link, Picture, Point } from './picture.ts';

const PADDING = 16;
const MARGIN = 8;
/** How near to a corner an arrow may touch a box, and how near to each other two arrows may. */
const CORNER = 10;
const GAP = 12;

/** A point as seen along the way. */
interface Spot {
  readonly along: number;
  readonly across: number;
}

/** The box itself, or the whole diagram, which has no id. */
interface Room {
  readonly id: string;
  readonly box: Box | undefined;
  readonly parent: Room | undefined;
  readonly rooms: Room[];
  readonly graph: Graph<GraphLabel, NodeLabel, EdgeLabel>;
  size: Spot;
  /** The corner with the least coordinates, within the diagram. */
  corner: Spot;
  /** Where the children's diagram begins, within the box. */
  inset: Spot;
}

/** One arrow's part in one room: between two of its boxes, or from a box to the room's border. */
interface Part {
  readonly room: Room;
  readonly from: Room | 'border';
  readonly to: Room | 'border';
  readonly hasLabel: boolean;
  /** It runs against the way of the diagram. */
  backward: boolean;
}

interface Route {
  readonly link: Link;
  readonly parts: readonly Part[];
}

/**
 * Places a diagram: some 50 ms for 20 boxes, 2 s for 200 with 400 arrows.
 *
 * @throws Error where an arrow names no two boxes
 */
export function draw({ boxes, links, direction }: Drawing): Picture {
  const top = roomOf({ id: 'top', width: 0, height: 0, children: boxes }, undefined, direction);
  const inner = top.rooms.flatMap(all);
  const rooms = new Map(inner.map((room) => [room.id, room]));
  const routes = links.map((link) => routeOf(link, rooms));
  const parts = routes.flatMap((route) => route.parts);
  for (const room of [top, ...inner]) findBackward(room, parts);
  for (const { parts } of routes) turnTowardsPorts(parts);
  place(top, routes, direction);
  settle(top, { along: MARGIN, across: MARGIN });
  const drawn = drawRoutes(routes);
  const flip = ({ along, across }: Spot): Point =>
    direction === 'right' ? { x: along, y: across } : { x: across, y: along };
  const whole = flip(top.size);
  return {
    direction,
    width: whole.x + 2 * MARGIN,
    height: whole.y + 2 * MARGIN,
    boxes: Object.fromEntries(
      inner.map((room) => {
        const size = flip(room.size);
        return [room.id, { ...flip(room.corner), width: size.x, height: size.y }];
      }),
    ),
    links: Object.fromEntries(
      drawn.map(({ id, points, label }) => [id, { points: points.map(flip), label: flip(label) }]),
    ),
  };
}

function roomOf(box: Box, parent: Room | undefined, direction: Direction): Room {
  const graph = new Graph<GraphLabel, NodeLabel, EdgeLabel>({ multigraph: true });
  const header = box.header ?? 0;
  const isTop = parent === undefined;
  const room: Room = {
    id: box.id,
    box,
    parent,
    rooms: [],
    graph,
    size: turned(box, direction),
    corner: { along: 0, across: 0 },
    inset: isTop
      ? { along: 0, across: 0 }
      : direction === 'right'
        ? { along: PADDING, across: header + PADDING / 2 }
        : { along: header + PADDING / 2, across: PADDING },
  };
  for (const child of box.children ?? []) room.rooms.push(roomOf(child, room, direction));
  return room;
}

function turned({ width, height }: { width: number; height: number }, direction: Direction): Spot {
  return direction === 'right'
    ? { along: width, across: height }
    : { along: height, across: width };
}

function all(room: Room): Room[] {
  return [room, ...room.rooms.flatMap(all)];
}

/** The room and those around it, outermost first. */
function chainOf(room: Room): Room[] {
  return room.parent === undefined ? [room] : [...chainOf(room.parent), room];
}

/** Which rooms an arrow goes through: out of those around its source, then into its target's. */
function routeOf(link: Link, rooms: ReadonlyMap<string, Room>): Route {
  const from = rooms.get(link.from);
  const to = rooms.get(link.to);
  if (from === undefined || to === undefined || from === to)
    throw new Error(`the arrow ${link.id} has no two boxes`);
  const out = chainOf(from);
  const into = chainOf(to);
  let shared = 0;
  while (out[shared] !== undefined && out[shared] === into[shared]) shared++;
  const parts: Part[] = [];
  // The innermost room that both are in. An arrow to a box around it begins or ends at its border.
  const room = out[shared - 1];
  if (room === undefined) throw new Error(`the arrow ${link.id} leaves the diagram`);
  for (let depth = out.length - 1; depth > shared; depth--) {
    const inner = out[depth];
    const around = out[depth - 1];
    if (inner === undefined || around === undefined) break;
    parts.push({ room: around, from: inner, to: 'border', hasLabel: false, backward: false });
  }
  parts.push({
    room,
    from: out[shared] ?? 'border',
    to: into[shared] ?? 'border',
    hasLabel: true,
    backward: false,
  });
  for (let depth = shared + 1; depth < into.length; depth++) {
    const inner = into[depth];
    const around = into[depth - 1];
    if (inner === undefined || around === undefined) break;
    parts.push({ room: around, from: 'border', to: inner, hasLabel: false, backward: false });
  }
  return { link, parts };
}

function grouped<K, T>(items: readonly T[], keyOf: (item: T) => K): ReadonlyMap<K, T[]> {
  const groups = new Map<K, T[]>();
  for (const item of items) {
    const key = keyOf(item);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [item]);
    else group.push(item);
  }
  return groups;
}

/** Finds the arrows that close a circle, seen from the first box. All others run one way. */
function findBackward(room: Room, parts: readonly Part[]): void {
  const arrows = parts.filter(
    (part) => part.room === room && part.from !== 'border' && part.to !== 'border',
  );
  const leaving = grouped(arrows, ({ from }) => from);
  const state = new Map<Room, 'open' | 'done'>();
  const visit = (from: Room): void => {
    state.set(from, 'open');
    for (const part of leaving.get(from) ?? []) {
      if (part.to === 'border') continue;
      const known = state.get(part.to);
      if (known === 'open') part.backward = true;
      else if (known === undefined) visit(part.to);
    }
    state.set(from, 'done');
  };
  for (const child of room.rooms) if (!state.has(child)) visit(child);
}

/** Which way an arrow leaves a room depends on which way it goes on outside. */
function turnTowardsPorts(parts: readonly Part[]): void {
  const middle = parts.find(({ hasLabel }) => hasLabel);
  if (middle !== undefined) for (const part of parts) part.backward = middle.backward;
}

/** The port of an arrow in a room has the arrow's id; no box has it, since boxes begin with `#`. */
const nodeOf = (room: Room): string => `#${room.id}`;

/** Places the boxes of a room, the inner ones first. */
function place(room: Room, routes: readonly Route[], direction: Direction): void {
  if (room.rooms.length === 0) return;
  for (const inner of room.rooms) place(inner, routes, direction);
  const { graph } = room;
  const mine = routes.flatMap(({ link, parts }) =>
    parts.filter((part) => part.room === room).map((part) => ({ link, part })),
  );
  stretchRegions(
    room,
    mine.map(({ part }) => part),
  );
  graph.setGraph({ rankdir: 'LR', nodesep: 22, edgesep: 14, ranksep: 22 });
  for (const inner of room.rooms)
    graph.setNode(nodeOf(inner), { width: inner.size.along, height: inner.size.across });
  const ranks = ranksOf(
    room,
    mine.map(({ part }) => part),
  );
  const last = Math.max(0, ...ranks.values());
  for (const { link, part } of mine) {
    const { from, to, backward, hasLabel } = part;
    const [first, second] = backward ? [to, from] : [from, to];
    const ends = [first, second].map((end) => (end === 'border' ? link.id : nodeOf(end)));
    const [v, w] = ends;
    if (v === undefined || w === undefined) continue;
    if (from === 'border' || to === 'border') graph.setNode(link.id, { width: 1, height: 1 });
    // A port stands before the first boxes, or behind the last ones.
    const minlen =
      first === 'border' && second !== 'border'
        ? Math.max(1, ranks.get(second) ?? 1)
        : second === 'border' && first !== 'border'
          ? Math.max(1, last - (ranks.get(first) ?? 0))
          : 1;
    const size = hasLabel ? turned(link, direction) : { along: 0, across: 0 };
    const label = { width: size.along, height: size.across, labelpos: 'c', minlen } as const;
    graph.setEdge(v, w, label, link.id);
  }
  if (mine.some(({ part }) => startsAtBorder(part))) alignStart(room, ranks);
  layout(graph);
  const { width = 0, height = 0 } = graph.graph();
  const isTop = room.parent === undefined;
  const { inset, size } = room;
  room.size = {
    along: Math.max(size.along, inset.along + width + (isTop ? 0 : PADDING)),
    across: Math.max(size.across, inset.across + height + (isTop ? 0 : PADDING)),
  };
  // What is written above the children may be wider than they are: they stand in the middle then.
  room.inset = {
    along: Math.max(
      inset.along,
      inset.along + (room.size.along - inset.along - width - PADDING) / 2,
    ),
    across: Math.max(
      inset.across,
      inset.across + (room.size.across - inset.across - height - PADDING) / 2,
    ),
  };
  if (isTop) room.inset = { along: 0, across: 0 };
}

/** Boxes that stand beside each other, with no arrow between them, are equally long. */
function stretchRegions({ parent, rooms }: Room, parts: readonly Part[]): void {
  const hasArrows = parts.some(({ from, to }) => from !== 'border' && to !== 'border');
  if (parent === undefined || hasArrows || rooms.some(({ rooms }) => rooms.length === 0)) return;
  const along = Math.max(...rooms.map(({ size }) => size.along));
  for (const inner of rooms) inner.size = { ...inner.size, along };
}

function startsAtBorder({ from, to, backward }: Part): boolean {
  return (backward ? to : from) === 'border';
}

/** Keeps the first boxes side by side, although only some of them have a port before them. */
function alignStart({ graph }: Room, ranks: ReadonlyMap<Room, number>): void {
  graph.setNode('start', { width: 0, height: 0 });
  for (const [inner, rank] of ranks)
    if (rank === 0) graph.setEdge('start', nodeOf(inner), { weight: 1, minlen: 1 }, 'start');
}

/** How many arrows lead to each box at most, from those that no arrow leads to. */
function ranksOf(room: Room, parts: readonly Part[]): ReadonlyMap<Room, number> {
  const ranks = new Map<Room, number>(room.rooms.map((inner) => [inner, 0]));
  const arrows = parts.flatMap(({ from, to, backward }) =>
    from === 'border' || to === 'border' ? [] : [backward ? [to, from] : [from, to]],
  );
  for (let round = 0; round < room.rooms.length; round++) {
    let isSettled = true;
    for (const [from, to] of arrows) {
      if (from === undefined || to === undefined) continue;
      const rank = (ranks.get(from) ?? 0) + 1;
      if (rank <= (ranks.get(to) ?? 0)) continue;
      ranks.set(to, rank);
      isSettled = false;
    }
    if (isSettled) break;
  }
  return ranks;
}

/** Gives each box its place within the diagram, once all of them have their sizes. */
function settle(room: Room, corner: Spot): void {
  room.corner = corner;
  for (const inner of room.rooms) {
    const { x = 0, y = 0 } = room.graph.node(nodeOf(inner)) ?? {};
    const middle = within(room, { along: x, across: y });
    settle(inner, {
      along: middle.along - inner.size.along / 2,
      across: middle.across - inner.size.across / 2,
    });
  }
}

/** A spot of the room's own diagram, within the whole one. */
function within({ corner, inset }: Room, { along, across }: Spot): Spot {
  return {
    along: corner.along + inset.along + along,
    across: corner.across + inset.across + across,
  };
}

interface Drawn {
  readonly id: string;
  readonly points: readonly Spot[];
  readonly label: Spot;
}

/** An arrow's end at a side of a box. Where it touches is found when all of that side are known. */
interface End {
  readonly room: Room;
  readonly side: 'start' | 'end';
  /** Where it would like to touch: straight ahead of the arrow's next point. */
  readonly wish: number;
  spot: Spot;
}

function drawRoutes(routes: readonly Route[]): Drawn[] {
  const drawn = routes.map((route) => spotsOf(route));
  const ends = drawn.flatMap(({ ends }) => ends);
  for (const side of grouped(ends, (end) => `${end.side}${end.room.id}`).values()) spread(side);
  return drawn.map(({ id, label, spots, first, last }) => ({
    id,
    label,
    points: [
      ...(first === undefined ? [] : leaving(first, 1)),
      ...spots,
      ...(last === undefined ? [] : leaving(last, -1)),
    ],
  }));
}

/** An arrow runs straight beside the boxes of its rank, which may be longer than its own. */
function leaving({ room, side, spot }: End, way: 1 | -1): Spot[] {
  const { parent } = room;
  if (parent === undefined) return [spot];
  const { x = 0 } = parent.graph.node(nodeOf(room)) ?? {};
  const half = halfOf(parent, x);
  const middle = within(parent, { along: x, across: 0 }).along;
  const straight = { ...spot, along: middle + (side === 'end' ? half : -half) };
  return way === 1 ? [spot, straight] : [straight, spot];
}

/** Half of the length of the longest box or label that stands in the rank at `x`. */
function halfOf({ graph, rooms }: Room, x: number): number {
  const lengths = rooms.map((inner) => {
    const node = graph.node(nodeOf(inner));
    return node !== undefined && Math.abs((node.x ?? 0) - x) < 1 ? node.width : 0;
  });
  return Math.max(0, ...lengths) / 2;
}

/** All points between the ends, and the ends that are to be spread over their boxes' sides. */
function spotsOf({ link, parts }: Route): Omit<Drawn, 'points'> & {
  readonly spots: readonly Spot[];
  readonly ends: readonly End[];
  readonly first: End | undefined;
  readonly last: End | undefined;
} {
  const spots: Spot[] = [];
  let label: Spot = { along: 0, across: 0 };
  for (const { room, from, to, backward, hasLabel } of parts) {
    const [first, second] = backward ? [to, from] : [from, to];
    const [v, w] = [first, second].map((end) => (end === 'border' ? link.id : nodeOf(end)));
    if (v === undefined || w === undefined) continue;
    const edge = room.graph.edge(v, w, link.id);
    if (from === 'border' && hasLabel) spots.push(portOf(room, link, backward ? 'end' : 'start'));
    const between = (edge?.points ?? []).slice(1, -1).flatMap(({ x, y }: Point) => {
      // The middle of the label is a point of its own, and the arrow runs straight through it.
      const isLabel = hasLabel && x === edge?.x;
      const half = isLabel ? (edge?.width ?? 0) / 2 : halfOf(room, x);
      const ways = half > 0 ? [x - half, x + half] : [x];
      return ways.map((along) => within(room, { along, across: y }));
    });
    spots.push(...(backward ? between.reverse() : between));
    if (hasLabel) label = within(room, { along: edge?.x ?? 0, across: edge?.y ?? 0 });
    if (to === 'border') spots.push(portOf(room, link, backward ? 'start' : 'end'));
    if (to !== 'border' && to.id !== link.to)
      spots.push(portOf(to, link, backward ? 'end' : 'start'));
  }
  const [start] = parts;
  const end = parts.at(-1);
  const middle = label.across;
  const firstEnd = start === undefined || start.from === 'border' ? undefined : start;
  const lastEnd = end === undefined || end.to === 'border' ? undefined : end;
  const first =
    firstEnd === undefined || firstEnd.from === 'border'
      ? undefined
      : endAt(firstEnd.from, firstEnd.backward ? 'start' : 'end', spots[0]?.across ?? middle);
  const last =
    lastEnd === undefined || lastEnd.to === 'border'
      ? undefined
      : endAt(lastEnd.to, lastEnd.backward ? 'end' : 'start', spots.at(-1)?.across ?? middle);
  const ends = [first, last].filter((each) => each !== undefined);
  return { id: link.id, label, spots, ends, first, last };
}

/** Where an arrow crosses the border of a room. */
function portOf(room: Room, link: Link, side: 'start' | 'end'): Spot {
  const { y = 0 } = room.graph.node(link.id) ?? {};
  const { across } = within(room, { along: 0, across: y });
  return { along: room.corner.along + (side === 'end' ? room.size.along : 0), across };
}

function endAt(room: Room, side: 'start' | 'end', wish: number): End {
  const along = room.corner.along + (side === 'end' ? room.size.along : 0);
  return { room, side, wish, spot: { along, across: wish } };
}

/** Spreads the arrows that touch one side of a box: as near to their wishes as they have room. */
function spread(ends: End[]): void {
  const [one] = ends;
  if (one === undefined) return;
  const { corner, size } = one.room;
  const low = corner.across + Math.min(CORNER, size.across / 2);
  const high = corner.across + size.across - Math.min(CORNER, size.across / 2);
  const gap = Math.min(GAP, (high - low) / Math.max(1, ends.length - 1));
  const sorted = ends.toSorted((a, b) => a.wish - b.wish);
  let at = Number.NEGATIVE_INFINITY;
  const places = sorted.map(({ wish }) => {
    at = Math.max(at + gap, Math.min(high, Math.max(low, wish)));
    return at;
  });
  // What was pushed over the corner pushes back those before it.
  let most = high;
  for (let index = places.length - 1; index >= 0; index--) {
    const place = Math.min(most, places[index] ?? high);
    places[index] = place;
    most = place - gap;
  }
  for (const [index, end] of sorted.entries())
    end.spot = { ...end.spot, across: places[index] ?? end.wish };
}
