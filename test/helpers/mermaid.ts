import { Window } from 'happy-dom';

/** What Mermaid would draw of a text, with the names that a reader sees. */
export interface ReadDiagram {
  readonly type: string;
  /** Each box: its title, its text and notes, and the title of the box around it. */
  readonly boxes: readonly {
    label: string;
    lines: readonly string[];
    parent: string | undefined;
  }[];
  /** Each arrow as the titles of its two boxes, and its label. */
  readonly arrows: readonly { from: string; to: string; label: string }[];
}

interface Box {
  readonly id: string;
  readonly label?: string;
  readonly description?: readonly string[];
  readonly parentId?: string;
  readonly shape: string;
}

/**
 * Reads a diagram with Mermaid's own parser, which needs a window even though it draws nothing.
 *
 * @throws the error of Mermaid where the text is no diagram
 */
export async function readDiagram(diagram: string): Promise<ReadDiagram> {
  // happy-dom loses what stands before a break, which a browser shows.
  const text = diagram.replaceAll('<br/>', BREAK);
  const mermaid = await parser();
  await mermaid.parse(text);
  const { type, db } = await mermaid.mermaidAPI.getDiagramFromText(text);
  const { nodes, edges } = Reflect.get(db, 'getData').call(db) as {
    nodes: Box[];
    edges: { start: string; end: string; label?: string }[];
  };
  const byId = new Map(nodes.map((box) => [box.id, box]));
  const title = (id: string): string => {
    const box = byId.get(id);
    if (box === undefined) return id;
    return /^state(Start|End)$/.test(box.shape) ? '[*]' : shown(box.label ?? '');
  };
  /** Mermaid draws blocks without a name between the regions of a parallel state. */
  const around = (id: string | undefined): string | undefined => {
    const box = id === undefined ? undefined : byId.get(id);
    return box?.shape === 'divider' ? around(box.parentId) : box && title(box.id);
  };
  const drawn = nodes.filter(
    ({ shape }) => !/^(divider|note|noteGroup|state(Start|End))$/.test(shape),
  );
  // Mermaid links a note to its state by an edge.
  const isNote = (id: string): boolean => byId.get(id)?.shape.startsWith('note') === true;
  const notesOf = (id: string): string[] =>
    edges.flatMap(({ start, end }) => {
      if (isNote(start) && end === id) return [title(start)];
      return isNote(end) && start === id ? [title(end)] : [];
    });
  const arrows = edges.filter(({ start, end }) => !isNote(start) && !isNote(end));
  return {
    type,
    boxes: drawn.map(({ id, description = [], parentId }) => ({
      label: title(id),
      lines: [...description.map(shown), ...notesOf(id)],
      parent: around(parentId),
    })),
    arrows: arrows.map(({ start, end, label }) => ({
      from: title(start),
      to: title(end),
      label: shown(label ?? ''),
    })),
  };
}

/**
 * Parses a diagram of any kind, and says which kind it is.
 *
 * @throws the error of Mermaid where the text is no diagram
 */
export async function kindOfDiagram(text: string): Promise<string> {
  const { diagramType } = await (await parser()).parse(text);
  return diagramType;
}

async function parser() {
  if (!('window' in globalThis)) {
    const window = new Window();
    Object.assign(globalThis, { window, document: window.document, Element: window.Element });
  }
  return (await import('mermaid')).default;
}

/** Where a name is broken, which a reader does not read. */
const BREAK = '⏎';

/** Until it draws, Mermaid keeps a placeholder for a character written by its number. */
function shown(text: string): string {
  return text
    .replaceAll(BREAK, '')
    .replace(/ﬂ°°(\d+)¶ß/g, (_, code) => String.fromCodePoint(Number(code)));
}
