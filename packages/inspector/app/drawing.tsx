/**
 * How the parts of a diagram look: states, the ways between them, how many runs are where, and the
 * way that one run took. Hides SVG, and how the arrow keys go from state to state.
 */
import type { OrderProgress, WorkflowGraph } from 'mcp-interlock-check';
import type { JSX } from 'preact';
import { useMemo, useRef, useState } from 'preact/hooks';
import type { StateCount, TrailItem } from '../src/api.ts';
import {
  type Arrow,
  CAUSES,
  type Chart,
  isJunction,
  LINE_HEIGHT,
  LINE_INSET,
  type Line,
  linesFrom,
  type StateBox,
  TITLE_HEIGHT,
  titleWithin,
} from './chart.ts';
import type { DiagramProps } from './diagram.tsx';
import { READABLE } from './folding.ts';
import { type Picture, type Point, pathOf, type Rect } from './picture.ts';
import { pillOf, spokenOf } from './progress.tsx';
import { counted, countedShort } from './words.ts';

/** No letter is smaller on the screen, in pixels. */
const LEAST_LETTER = 11;

const SIGNS_OF_STATES = ['success', 'failure', 'event', 'itself', 'stays'] as const;
const SIGNS_OF_RULES = ['needs', 'unless', 'undoes', 'once'] as const;

export function Legend({ graph }: { readonly graph: WorkflowGraph }): JSX.Element {
  const causes = graph.kind === 'order' ? SIGNS_OF_RULES : SIGNS_OF_STATES;
  return (
    <ul class="legend" aria-label="Legend">
      {causes.map((cause) => (
        <li key={cause}>
          <svg width="12" height="12" viewBox="-6 -6 12 12" aria-hidden="true">
            <Sign cause={cause} />
          </svg>
          {CAUSES[cause]}
        </li>
      ))}
    </ul>
  );
}

interface DrawingProps extends DiagramProps {
  readonly chart: Chart;
  readonly picture: Picture;
  readonly scale: number;
  readonly progress: OrderProgress | undefined;
  readonly onUnfold: (inside: readonly string[]) => void;
}

export function Drawing(props: DrawingProps): JSX.Element {
  const { graph, chart, picture, scale, standing, trail, chosen, progress } = props;
  const { onChoose, onTake, onUnfold } = props;
  const active = new Set(standing?.active.map(chart.at));
  const marks = marksOf(chart, props.counts);
  const isSmall = scale < READABLE;
  const ids = [...chart.states.values()]
    .filter(({ node }) => !isJunction(node))
    .map(({ node }) => node.id);
  const [roving, setRoving] = useState<string>();
  const reached = roving !== undefined && ids.includes(roving) ? roving : undefined;
  const tabStop = reached ?? [...active].at(-1) ?? ids[0];
  const svg = useRef<SVGSVGElement>(null);
  const { visited, lit, newest } = useMemo(() => litBy(chart, trail), [chart, trail]);
  const onKeyDown = (event: KeyboardEvent): void => {
    const next = nextOf(picture, ids, tabStop, event.key);
    if (next === undefined) return;
    event.preventDefault();
    setRoving(next);
    svg.current?.querySelector<SVGElement>(`[data-state="${CSS.escape(next)}"] > .halo`)?.focus();
  };
  const { width, height } = picture;
  return (
    <svg
      ref={svg}
      class={`${standing === undefined ? '' : 'focused'} ${isSmall ? 'tiny' : ''}`}
      width={width * scale}
      height={height * scale}
      viewBox={`0 0 ${width} ${height}`}
      role="group"
      aria-label={`Diagram of ${graph.id}`}
      onKeyDown={onKeyDown}
    >
      {[...chart.states.values()].map((state) =>
        isJunction(state.node) ? (
          <Junction key={state.node.id} node={state.node} rect={picture.boxes[state.node.id]} />
        ) : (
          <State
            key={state.node.id}
            state={state}
            rect={picture.boxes[state.node.id]}
            isRegion={chart.states.get(state.node.parent ?? '')?.node.type === 'parallel'}
            mark={marks.get(state.node.id)}
            isActive={active.has(state.node.id)}
            isVisited={visited.has(state.node.id)}
            isChosen={chosen === state.node.id}
            isTabStop={state.node.id === tabStop}
            scale={scale}
            progress={progress}
            onChoose={() => {
              const { id, inside } = state.node;
              setRoving(id);
              if (inside === undefined) onChoose(id);
              else onUnfold(inside);
            }}
          />
        ),
      )}
      {chart.dots.map((dot) => {
        const box = picture.boxes[dot];
        return box && <circle key={dot} class="dot" cx={box.x + 6} cy={box.y + 6} r="5" />;
      })}
      {chart.arrows.map((arrow) => (
        <ArrowLine
          key={arrow.id}
          arrow={arrow}
          picture={picture}
          light={newest === arrow.id ? 'newest' : lit.has(arrow.id) ? 'lit' : ''}
        />
      ))}
      {chart.arrows.map((arrow) => (
        <ArrowLabel
          key={arrow.id}
          arrow={arrow}
          picture={picture}
          light={newest === arrow.id ? 'newest' : lit.has(arrow.id) ? 'lit' : ''}
          onTake={active.has(arrow.from) ? onTake : undefined}
        />
      ))}
    </svg>
  );
}

/** What is to be seen of one state now. */
interface StateMark {
  readonly runs: number;
  readonly stuck: number;
}

function marksOf({ at }: Chart, counts: readonly StateCount[]): ReadonlyMap<string, StateMark> {
  const marks = new Map<string, StateMark>();
  for (const { active, runs, stuck } of counts)
    for (const id of new Set(active.map(at))) {
      const known = marks.get(id) ?? { runs: 0, stuck: 0 };
      marks.set(id, { runs: known.runs + runs, stuck: known.stuck + stuck });
    }
  return marks;
}

/** Which states and arrows a run came through. */
function litBy(
  { arrows, at }: Chart,
  trail: readonly TrailItem[],
): {
  readonly visited: ReadonlySet<string>;
  readonly lit: ReadonlySet<string>;
  readonly newest: string | undefined;
} {
  const visited = new Set<string>();
  const lit = new Set<string>();
  let newest: string | undefined;
  for (const move of trail) {
    const { event } = move;
    const fromActive = move.fromActive.map(at);
    const toActive = move.toActive?.map(at);
    for (const id of [...fromActive, ...(toActive ?? [])]) visited.add(id);
    if (toActive === undefined) continue;
    const entered = toActive.filter((id) => !fromActive.includes(id));
    const took = arrows.filter(({ from, to, edges }) => {
      const isWay = fromActive.includes(from) && (entered.includes(to) || edges.length === 0);
      const isCause = edges.some(({ type, event: sent }) => {
        // What a tool must not be after, and what undoes it, is no way of a run.
        if (type === 'unless' || type === 'undoes') return false;
        return type !== 'event' || sent === event;
      });
      return isWay && isCause;
    });
    for (const { id } of took) lit.add(id);
    newest ??= took[0]?.id;
  }
  return { visited, lit, newest };
}

/** Which state an arrow key leads to: the nearest one on that side, as the eye sees it. */
function nextOf(
  { boxes }: Picture,
  ids: readonly string[],
  from: string | undefined,
  key: string,
): string | undefined {
  if (key === 'Home') return ids[0];
  if (key === 'End') return ids.at(-1);
  const way = WAYS[key];
  const here = from === undefined ? undefined : boxes[from];
  if (way === undefined || here === undefined) return undefined;
  const start = middleOf(here);
  let best: { readonly id: string; readonly far: number } | undefined;
  for (const id of ids) {
    const box = boxes[id];
    if (id === from || box === undefined) continue;
    const middle = middleOf(box);
    const ahead = (middle.x - start.x) * way.x + (middle.y - start.y) * way.y;
    const aside = Math.abs((middle.x - start.x) * way.y) + Math.abs((middle.y - start.y) * way.x);
    if (ahead <= 1) continue;
    const far = ahead + 2.5 * aside;
    if (best === undefined || far < best.far) best = { id, far };
  }
  return best?.id;
}

const WAYS: Readonly<Record<string, Point>> = {
  ArrowRight: { x: 1, y: 0 },
  ArrowLeft: { x: -1, y: 0 },
  ArrowDown: { x: 0, y: 1 },
  ArrowUp: { x: 0, y: -1 },
};

function middleOf({ x, y, width, height }: Rect): Point {
  return { x: x + width / 2, y: y + height / 2 };
}

interface JunctionProps {
  readonly node: StateBox['node'];
  readonly rect: Rect | undefined;
}

/** Words between arrows: they say whether one of those that lead here is needed, or each. */
function Junction({ node, rect }: JunctionProps): JSX.Element | null {
  if (rect === undefined) return null;
  const { x, y, width, height } = rect;
  return (
    <g class="junction">
      <rect x={x} y={y} width={width} height={height} rx={height / 2} />
      <text x={x + width / 2} y={y + height / 2 + 4} text-anchor="middle">
        {node.label}
      </text>
    </g>
  );
}

interface StateProps {
  readonly state: StateBox;
  readonly rect: Rect | undefined;
  readonly isRegion: boolean;
  readonly mark: StateMark | undefined;
  readonly isActive: boolean;
  readonly isVisited: boolean;
  readonly isChosen: boolean;
  readonly isTabStop: boolean;
  readonly scale: number;
  readonly progress: OrderProgress | undefined;
  readonly onChoose: () => void;
}

function State(props: StateProps): JSX.Element | null {
  const { state, rect, mark, isActive, isVisited, isChosen, isTabStop, isRegion } = props;
  const { scale, progress } = props;
  if (rect === undefined) return null;
  const { node, lines } = state;
  const { x, y, width, height } = rect;
  const kinds = [
    'state',
    node.type,
    isRegion && 'region',
    isActive && 'active',
    isVisited && 'visited',
    isChosen && 'chosen',
    progress?.next.includes(node.id) && 'next',
  ];
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key !== 'Enter' && event.key !== ' ') return;
    event.preventDefault();
    props.onChoose();
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: the button within is what keys reach.
    <g class={kinds.filter(Boolean).join(' ')} data-state={node.id} onClick={props.onChoose}>
      <rect
        class="halo"
        x={x - 4}
        y={y - 4}
        width={width + 8}
        height={height + 8}
        rx="14"
        role="button"
        // SVG has no tabIndex: the name of the attribute is as HTML writes it.
        tabindex={isTabStop ? 0 : -1}
        aria-label={nameOf(props)}
        aria-pressed={isChosen}
        onKeyDown={onKeyDown}
      />
      {/* What is drawn is said by the button beneath it. */}
      {/* biome-ignore lint/a11y/noAriaHiddenOnFocusable: a group of SVG takes no focus. */}
      <g aria-hidden="true">
        <title>{titleOf(state)}</title>
        <rect
          class="shape"
          x={x}
          y={y}
          width={width}
          height={height}
          rx={node.type === 'history' ? 13 : 10}
        />
        {node.type === 'final' && (
          <rect class="inner" x={x + 3} y={y + 3} width={width - 6} height={height - 6} rx="7" />
        )}
        {node.type === 'history' ? (
          <text class="title" x={x + 13} y={y + 17} text-anchor="middle">
            H
          </text>
        ) : (
          <Title state={state} rect={rect} scale={scale} />
        )}
        <Lines lines={lines} x={x + 12} y={y + linesFrom(state)} />
        {progress !== undefined ? (
          <Pill text={pillOf(progress, node.id)} kind="needs" x={x + width} y={y} />
        ) : (
          mark !== undefined &&
          mark.runs > 0 && (
            <Pill
              text={countedShort(mark.runs)}
              kind={mark.stuck > 0 ? 'stuck' : ''}
              x={x + width}
              y={y}
            />
          )
        )}
      </g>
    </g>
  );
}

/** A state's name. Where the diagram is small, it is as big as can be read, and cut off. */
function Title({ state, rect, scale }: TitleProps): JSX.Element {
  const { x, y, width } = rect;
  const { node, titles } = state;
  const size = LEAST_LETTER / scale;
  if (size > 13)
    return (
      <text class="title" x={x + 8} y={y + 9 + size} style={{ fontSize: `${size}px` }}>
        {titleWithin(node.label, size, width - 16)}
      </text>
    );
  return (
    <text class="title" y={y + 22}>
      {titles.map((title, index) => (
        <tspan key={title} x={x + 12} dy={index === 0 ? 0 : TITLE_HEIGHT}>
          {title}
        </tspan>
      ))}
    </text>
  );
}

interface TitleProps {
  readonly state: StateBox;
  readonly rect: Rect;
  readonly scale: number;
}

function titleOf({ node }: StateBox): string {
  if (node.inside !== undefined) return node.inside.join('\n');
  const tags = node.tags === undefined ? '' : `\ntags: ${node.tags.join(', ')}`;
  return `${node.id || node.label}${tags}`;
}

function nameOf({ state, mark, isActive, isVisited, progress }: StateProps): string {
  const { node, lines } = state;
  const words = [
    node.label,
    node.type === 'folded'
      ? 'folded, press to unfold'
      : node.type === 'tool'
        ? 'tool'
        : node.type === 'atomic'
          ? 'state'
          : `${node.type} state`,
    isActive && (node.type === 'tool' ? 'the run has done it' : 'the run is here'),
    !isActive && isVisited && (node.type === 'tool' ? 'the run did it' : 'the run was here'),
    mark !== undefined &&
      mark.runs > 0 &&
      `${counted(mark.runs)} ${mark.runs === 1 ? 'run' : 'runs'}`,
    mark !== undefined && mark.stuck > 0 && `${counted(mark.stuck)} of them stuck`,
    progress && spokenOf(progress, node.id),
    ...lines.map(({ title }) => title),
  ];
  return words.filter(Boolean).join(', ');
}

interface PillProps {
  readonly text: string;
  readonly kind: string;
  /** The upper right corner of its state. */
  readonly x: number;
  readonly y: number;
}

function Pill({ text, kind, x, y }: PillProps): JSX.Element | null {
  if (text === '') return null;
  const width = 10 + text.length * 6.8;
  return (
    <g class={`count ${kind} ${text}`}>
      <rect x={x - width - 9} y={y + 8} width={width} height="18" rx="9" />
      <text x={x - width / 2 - 9} y={y + 21} text-anchor="middle">
        {text}
      </text>
    </g>
  );
}

interface ArrowProps {
  readonly arrow: Arrow;
  readonly picture: Picture;
  readonly light: string;
}

const HEAD = 7;

function ArrowLine({ arrow, picture, light }: ArrowProps): JSX.Element | null {
  const route = picture.links[arrow.id];
  const end = route?.points.at(-1);
  const before = route?.points.at(-2);
  if (route === undefined || end === undefined || before === undefined) return null;
  const isRight = picture.direction === 'right';
  const way = Math.sign(isRight ? end.x - before.x : end.y - before.y) || 1;
  const neck = isRight ? { x: end.x - way * HEAD, y: end.y } : { x: end.x, y: end.y - way * HEAD };
  const data = pathOf([...route.points.slice(0, -1), neck], picture.direction);
  const head = isRight
    ? `M${end.x},${end.y}l${-way * HEAD},-4v8z`
    : `M${end.x},${end.y}l-4,${-way * HEAD}h8z`;
  const { edges } = arrow;
  const isRuledOut =
    edges.length > 0 && edges.every(({ type }) => type === 'undoes' || type === 'unless');
  return (
    <g class={`arrow ${light} ${isRuledOut ? 'against' : ''}`}>
      <path class="line" d={data} />
      <path class="head" d={head} />
    </g>
  );
}

interface LabelProps extends ArrowProps {
  readonly onTake: DiagramProps['onTake'];
}

function ArrowLabel({ arrow, picture, light, onTake }: LabelProps): JSX.Element | null {
  const route = picture.links[arrow.id];
  const size = arrow.size;
  if (route === undefined || arrow.lines.length === 0) return null;
  const x = route.label.x - size.width / 2;
  const y = route.label.y - size.height / 2;
  return (
    <g class={`label ${light}`}>
      <rect x={x} y={y} width={size.width} height={size.height} rx="6" />
      <Lines lines={arrow.lines} x={x + 8} y={y + 3} onTake={onTake} />
    </g>
  );
}

/** What no walk can take. */
const NO_MOVES: readonly Line['cause'][] = ['begins', 'more', 'inside', ...SIGNS_OF_RULES];

interface LinesProps {
  readonly lines: readonly Line[];
  readonly x: number;
  readonly y: number;
  readonly onTake?: DiagramProps['onTake'];
}

function Lines({ lines, x, y, onTake }: LinesProps): JSX.Element {
  let below = y;
  return (
    <>
      {lines.map((line) => {
        const top = below;
        below += line.texts.length * LINE_HEIGHT;
        const key = `${line.cause}${line.title}${top}`;
        return <LabelLine key={key} line={line} x={x} y={top} onTake={onTake} />;
      })}
    </>
  );
}

interface LineProps extends Omit<LinesProps, 'lines'> {
  readonly line: Line;
}

function LabelLine({ line, x, y, onTake }: LineProps): JSX.Element {
  const isOffered = onTake !== undefined && !NO_MOVES.includes(line.cause);
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: the panel has the same as buttons.
    <g
      class={`line-of ${line.cause} ${isOffered ? 'offered' : ''}`}
      onClick={isOffered ? () => onTake(line) : undefined}
    >
      <title>{line.title}</title>
      <g transform={`translate(${x + 5},${y + 8})`}>
        <Sign cause={line.cause} />
      </g>
      <text y={y + 12}>
        {line.texts.map((text, index) => (
          <tspan key={text} x={x + LINE_INSET} dy={index === 0 ? 0 : LINE_HEIGHT}>
            {text}
          </tspan>
        ))}
        {line.isUnsure && (
          <tspan class="unsure" dx="5">
            ?
          </tspan>
        )}
      </text>
    </g>
  );
}

/** The sign before a line: distinguished by its form, and by its colour too. */
function Sign({ cause }: { readonly cause: Line['cause'] }): JSX.Element | null {
  switch (cause) {
    case 'success':
      return <path class="sign success" d="M-4,0.5l2.7,2.8l5.3,-6" />;
    case 'failure':
      return <path class="sign failure" d="M-3,-3l6,6M3,-3l-6,6" />;
    case 'event':
      return <path class="sign event" d="M0,-4.2l4.2,4.2l-4.2,4.2l-4.2,-4.2z" />;
    case 'itself':
      return <path class="sign itself" d="M0,-4.5a4.5,4.5 0 1 0 0.01,0M0,-2.2v2.4l1.8,1.2" />;
    case 'stays':
      return <path class="sign stays" d="M3.2,-2.2a4,4 0 1 0 0.8,2.6M4.2,-4.6v2.8h-2.8" />;
    case 'needs':
      return <path class="sign needs" d="M-4.5,0h7.5M0.5,-3l3,3l-3,3" />;
    case 'unless':
      return <path class="sign unless" d="M-3.2,3.2a4.5,4.5 0 1 1 0.01,0.01M-3.2,3.2l6.4,-6.4" />;
    case 'undoes':
      return (
        <path
          class="sign undoes"
          d="M-4.2,-1h5.5a2.6,2.6 0 0 1 0,5.2h-3M-1.7,-3.5l-2.5,2.5l2.5,2.5"
        />
      );
    case 'once':
      return <path class="sign once" d="M-1.8,-2.6l2.2,-1.6v8.4" />;
    default:
      return null;
  }
}
