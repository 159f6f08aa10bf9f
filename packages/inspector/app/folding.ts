/**
 * Which part of a workflow is drawn. It hides how much fits, and when that is asked anew: not while
 * runs move, or the diagram would move under the eyes of whom it serves.
 */
import { foldGraph, type WorkflowGraph } from 'mcp-interlock-check';
import { useEffect, useRef, useState } from 'preact/hooks';
import { type Chart, chartOf } from './chart.ts';
import type { Picture } from './picture.ts';
import { pictureOf } from './pictures.ts';
import { wordsOf } from './server.ts';

/** At less than that, the letters of labels would be smaller than 11 px. */
export const READABLE = 0.96;
/** More than so many states fit nowhere. */
const MOST_STATES = 48;

export interface Size {
  readonly width: number;
  readonly height: number;
}

export interface Wanted {
  readonly graph: WorkflowGraph;
  /** What is worth to be seen, most of all first. */
  readonly near: readonly string[];
  /** What must be seen: where a run begins, where the picked one is, what a person unfolded. */
  readonly pinned: readonly string[];
  /** How many of `near` must be seen beside. */
  readonly more: number;
  readonly size: Size | undefined;
  /** All of it, however small. */
  readonly isWhole: boolean;
}

export interface Drawn {
  readonly graph: WorkflowGraph;
  readonly chart: Chart;
  readonly picture: Picture;
}

export function fitOf({ width, height }: Size, frame: Size): number {
  return Math.min((frame.width - 24) / width, (frame.height - 24) / height);
}

/** The part that is drawn now; or why there is none. */
export function useDrawn(wanted: Wanted): { readonly drawn?: Drawn; readonly fault?: string } {
  const [drawn, setDrawn] = useState<Drawn>();
  const [fault, setFault] = useState<string>();
  const { graph, pinned, size, isWhole } = wanted;
  const known = drawn?.graph === graph ? drawn : undefined;
  const latest = useRef(wanted);
  latest.current = wanted;
  const missing = pinned.filter((id) => known !== undefined && !known.chart.states.has(id));
  const [round, setRound] = useState(0);
  const lacks = missing.join();
  useEffect(() => {
    if (lacks !== '') setRound((each) => each + 1);
  }, [lacks]);
  useEffect(() => {
    if (size === undefined) return;
    let isWanted = true;
    drawnFor(latest.current, size, () => isWanted).then(
      (found) => isWanted && found !== undefined && setDrawn(found),
      (error: unknown) => isWanted && setFault(wordsOf(error)),
    );
    return () => {
      isWanted = false;
    };
  }, [graph, size?.width, size?.height, isWhole, round]);
  return {
    ...(known !== undefined && { drawn: known }),
    ...(fault !== undefined && { fault }),
  };
}

/** As many states as fit where they can be read, and no fewer than must be seen. */
async function drawnFor(
  { graph, near, pinned, more, isWhole }: Wanted,
  size: Size,
  isWanted: () => boolean,
): Promise<Drawn | undefined> {
  const order = [...new Set([...pinned, ...near])];
  const draw = async (most: number): Promise<Drawn & { readonly fits: boolean }> => {
    const chart = chartOf(foldGraph(graph, { near: order, most }));
    const { boxes, links } = chart;
    const [right, down] = await Promise.all([
      pictureOf({ boxes, links, direction: 'right' }),
      pictureOf({ boxes, links, direction: 'down' }),
    ]);
    const picture = fitOf(right, size) >= fitOf(down, size) ? right : down;
    return { graph, chart, picture, fits: fitOf(picture, size) >= READABLE };
  };
  const all = graph.nodes.length;
  if (isWhole) return draw(all);
  let few = Math.max(1, Math.min(all, new Set(pinned).size + more));
  let many = Math.min(all, MOST_STATES);
  if (all <= MOST_STATES / 2) {
    const whole = await draw(all);
    if (whole.fits) return whole;
  }
  let best = await draw(few);
  while (few < many && isWanted()) {
    const middle = Math.ceil((few + many) / 2);
    const next = await draw(middle);
    if (next.fits) [best, few] = [next, middle];
    else many = middle - 1;
  }
  return isWanted() ? best : undefined;
}
