/**
 * A workflow as a picture that can be looked at: hides which part of it is shown, zooming, panning,
 * and what is brought into sight.
 */
import { type OrderProgress, orderProgress, type WorkflowGraph } from 'mcp-interlock-check';
import type { JSX } from 'preact';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Standing, StateCount, TrailItem } from '../src/api.ts';
import type { Line } from './chart.ts';
import { Drawing, Legend } from './drawing.tsx';
import { fitOf, READABLE, type Size, useDrawn } from './folding.ts';
import { Icon } from './parts.tsx';
import type { Picture } from './picture.ts';
import { Progress } from './progress.tsx';

export interface DiagramProps {
  readonly graph: WorkflowGraph;
  /** How many runs are in which state, by what is active there. */
  readonly counts: readonly StateCount[];
  /** Where the picked run, or the walk, stands. */
  readonly standing: Standing | undefined;
  /** How it came there, the newest move first. */
  readonly trail: readonly TrailItem[];
  /** By which state the list of runs is filtered. */
  readonly chosen: string | undefined;
  readonly onChoose: (state: string) => void;
  /** On a walk: takes a way that leads on from here. The panel has the same for the keyboard. */
  readonly onTake?: ((line: Line) => void) | undefined;
}

const LEAST_SCALE = 0.2;
const MOST_SCALE = 2.5;
const BIGGEST_FIT = 1.25;
/** Of many tools that a run can call, so many must be seen. */
const MOST_PINNED = 4;

export function Diagram(props: DiagramProps): JSX.Element {
  const { graph, standing } = props;
  const frame = useRef<HTMLDivElement>(null);
  const size = useSize(frame);
  const [unfolded, setUnfolded] = useState<readonly string[]>([]);
  const [zoom, setZoom] = useState<number | 'readable' | 'fit'>('readable');
  const isWhole = zoom === 'fit';
  const asOpened = (): void => {
    setZoom('readable');
    setUnfolded([]);
  };
  useEffect(asOpened, [graph]);
  const begins = useMemo(() => beginsOf(graph), [graph]);
  const progress = useMemo(() => progressOf(graph, standing), [graph, standing]);
  const isInner = innerOf(graph);
  const here = progress?.next ?? standing?.active.filter(isInner) ?? [];
  const { drawn, fault } = useDrawn({
    graph,
    near: [...here, ...busiest(props.counts).filter(isInner)],
    pinned: [...begins, ...here.slice(0, MOST_PINNED), ...unfolded],
    // Without a picked run, the busiest state is seen too.
    more: here.length === 0 ? 1 : 0,
    size,
    isWhole,
  });
  const fit = size && drawn ? Math.min(BIGGEST_FIT, fitOf(drawn.picture, size)) : 1;
  const scale = zoom === 'fit' ? fit : zoom === 'readable' ? Math.max(fit, READABLE) : zoom;
  const by = (factor: number): void =>
    setZoom(Math.min(MOST_SCALE, Math.max(LEAST_SCALE, scale * factor)));
  useWheelZoom(frame, by);
  usePanning(frame);
  const seen = unfolded.at(-1) ?? here.at(-1) ?? begins[0];
  useShown(frame, drawn?.picture, scale, seen);
  return (
    <div class="diagram">
      {progress !== undefined && <Progress progress={progress} />}
      <div class="canvas" ref={frame}>
        {drawn ? (
          <Drawing
            {...props}
            chart={drawn.chart}
            picture={drawn.picture}
            scale={scale}
            progress={progress}
            onUnfold={(inside) => setUnfolded([...unfolded, ...inside])}
          />
        ) : (
          <p class="drawing">{fault ?? 'Drawing …'}</p>
        )}
      </div>
      <div class="zoom" role="group" aria-label="Zoom">
        <button type="button" onClick={() => by(1 / 1.25)} aria-label="Smaller">
          <Icon name="minus" />
        </button>
        <button type="button" onClick={() => by(1.25)} aria-label="Bigger">
          <Icon name="plus" />
        </button>
        <button
          type="button"
          onClick={() => (isWhole ? asOpened() : setZoom('fit'))}
          aria-pressed={isWhole}
          aria-label="Show all of the diagram"
          title="Show all of the diagram, however small"
        >
          <Icon name="fit" />
        </button>
      </div>
      <Legend graph={graph} />
    </div>
  );
}

/** Nothing for a machine of states. */
function progressOf(
  graph: WorkflowGraph,
  standing: Standing | undefined,
): OrderProgress | undefined {
  if (graph.kind !== 'order' || standing === undefined) return undefined;
  const available = standing.tools.flatMap(({ tool, shown }) => (shown ? [tool] : []));
  return orderProgress(graph, { active: standing.active, available });
}

/** The nodes that have none inside. */
function innerOf({ nodes }: WorkflowGraph): (id: string) => boolean {
  const around = new Set(nodes.map(({ parent }) => parent));
  return (id) => !around.has(id);
}

/** Where runs begin; under rules of order, the first tool that needs no other one. */
function beginsOf(graph: WorkflowGraph): readonly string[] {
  if (graph.kind !== 'order') return graph.initial.filter(innerOf(graph));
  const needing = new Set(graph.edges.map(({ to }) => to));
  return graph.nodes
    .map(({ id }) => id)
    .filter((id) => !needing.has(id))
    .slice(0, 1);
}

/** All that is active somewhere: first where runs are stuck, then where most of them are. */
function busiest(counts: readonly StateCount[]): readonly string[] {
  const sorted = counts.toSorted((a, b) => b.stuck - a.stuck || b.runs - a.runs);
  return sorted.flatMap(({ active }) => active);
}

/** The size of an element's inside, as long as it is shown. */
function useSize(element: { readonly current: HTMLElement | null }): Size | undefined {
  const [size, setSize] = useState<Size>();
  useLayoutEffect(() => {
    const { current } = element;
    if (current === null) return;
    const observer = new ResizeObserver(() => {
      const { clientWidth: width, clientHeight: height } = current;
      if (width > 0 && height > 0) setSize({ width, height });
    });
    observer.observe(current);
    return () => observer.disconnect();
  }, [element]);
  return size;
}

function useWheelZoom(
  frame: { readonly current: HTMLElement | null },
  by: (factor: number) => void,
): void {
  const latest = useRef(by);
  latest.current = by;
  useEffect(() => {
    const { current } = frame;
    if (current === null) return;
    const onWheel = (event: WheelEvent): void => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      latest.current(Math.exp(-event.deltaY / 300));
    };
    current.addEventListener('wheel', onWheel, { passive: false });
    return () => current.removeEventListener('wheel', onWheel);
  }, [frame]);
}

/** A mouse drags the diagram; a finger scrolls it anyway. */
function usePanning(frame: { readonly current: HTMLElement | null }): void {
  useEffect(() => {
    const { current } = frame;
    if (current === null) return;
    let from: { readonly x: number; readonly y: number } | undefined;
    const onDown = (event: PointerEvent): void => {
      if (event.pointerType !== 'mouse' || event.button !== 0) return;
      from = { x: event.clientX + current.scrollLeft, y: event.clientY + current.scrollTop };
    };
    const onMove = (event: PointerEvent): void => {
      if (from === undefined) return;
      current.scrollLeft = from.x - event.clientX;
      current.scrollTop = from.y - event.clientY;
    };
    const onUp = (): void => {
      from = undefined;
    };
    current.addEventListener('pointerdown', onDown);
    addEventListener('pointermove', onMove);
    addEventListener('pointerup', onUp);
    return () => {
      current.removeEventListener('pointerdown', onDown);
      removeEventListener('pointermove', onMove);
      removeEventListener('pointerup', onUp);
    };
  }, [frame]);
}

/** Keeps one state in sight where the diagram is bigger than its frame. */
function useShown(
  frame: { readonly current: HTMLElement | null },
  picture: Picture | undefined,
  scale: number,
  state: string | undefined,
): void {
  useEffect(() => {
    const { current } = frame;
    const box = state === undefined ? undefined : picture?.boxes[state];
    if (current === null || box === undefined) return;
    const left = box.x * scale;
    const top = box.y * scale;
    const isIn =
      left >= current.scrollLeft &&
      left + box.width * scale <= current.scrollLeft + current.clientWidth &&
      top >= current.scrollTop &&
      top + box.height * scale <= current.scrollTop + current.clientHeight;
    if (isIn) return;
    const calm = matchMedia('(prefers-reduced-motion: reduce)').matches;
    current.scrollTo({
      left: left - (current.clientWidth - box.width * scale) / 2,
      top: top - (current.clientHeight - box.height * scale) / 2,
      behavior: calm ? 'auto' : 'smooth',
    });
  }, [frame, picture, scale, state]);
}
