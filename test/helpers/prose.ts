/**
 * The sentences that a person reads: those of comments in code, and of prose in Markdown. Hides what
 * is no sentence: code, links' targets, headings, and the edges of list items and table cells.
 */
export interface Sentence {
  readonly text: string;
  /** Inline code counts as one word. */
  readonly words: number;
}

/** The sentences of a file, by its ending. */
export function sentencesOf(path: string, text: string): Sentence[] {
  const blocks = path.endsWith('.md') ? proseOf(text) : commentsOf(text);
  return blocks.flatMap(splitIntoSentences);
}

/** The paragraphs, list items and table cells of a page. */
function proseOf(markdown: string): readonly string[] {
  const blocks = new Blocks();
  let isCode = false;
  for (const line of markdown.split('\n')) {
    const isFence = /^\s*```/.test(line);
    if (isFence) isCode = !isCode;
    if (isCode || isFence || line.trim() === '' || /^#|^\s*<!--/.test(line)) blocks.end();
    else if (/^\s*\|/.test(line)) for (const cell of line.split(/(?<!\\)\|/)) blocks.addWhole(cell);
    else blocks.add(line.replace(/^\s*>/, ''), /^\s*([-*]|\d+\.)\s/.test(line));
  }
  return blocks.all();
}

/** The comments of a source file: a paragraph or a list item each. */
function commentsOf(source: string): readonly string[] {
  const blocks = new Blocks();
  let isComment = false;
  for (const line of source.split('\n').map((each) => each.trim())) {
    const starts = line.startsWith('/*') || line.startsWith('{/*');
    if (starts) blocks.end();
    if (starts || isComment) {
      const said = line.replace(/^\{?\/\*+|\*\/\}?$/g, '').replace(/^\*(?!\/)/, '');
      addComment(blocks, said.trim());
      isComment = !/\*\/\}?$/.test(line);
      if (!isComment) blocks.end();
    } else if (line.startsWith('//')) addComment(blocks, line.replace(/^\/+/, '').trim());
    else blocks.end();
  }
  return blocks.all();
}

function addComment(blocks: Blocks, said: string): void {
  if (said === '') blocks.end();
  else if (said.startsWith('|')) for (const cell of said.split('|')) blocks.addWhole(cell);
  else blocks.add(said, /^(@|[-*] |\d+\. |(biome|ts|c8|v8)-?\w* )/.test(said));
}

/** Gathers lines into blocks. */
class Blocks {
  readonly #found: string[] = [];
  #lines: string[] = [];

  add(line: string, isNew: boolean): void {
    if (isNew) this.end();
    this.#lines.push(line.trim());
  }

  addWhole(text: string): void {
    this.end();
    if (text.trim() !== '') this.add(text, true);
    this.end();
  }

  end(): void {
    if (this.#lines.length > 0) this.#found.push(this.#lines.join(' '));
    this.#lines = [];
  }

  all(): readonly string[] {
    this.end();
    return this.#found;
  }
}

/** A colon or a semicolon in front of a capital ends a sentence too. */
function splitIntoSentences(block: string): Sentence[] {
  const text = block
    .replace(/`[^`]*`/g, 'X')
    .replace(/\{@link ([^}]*)\}/g, '$1')
    .replace(/!?\[([^\]]*)\]\([^)]*\)/g, '$1');
  return text.split(/(?<=[.!?:;])\s+(?=[A-Z"(*]|$)/).map((sentence) => ({
    text: sentence.trim(),
    words: sentence.split(/\s+/).filter((word) => /[A-Za-z0-9]/.test(word)).length,
  }));
}

/** The most words that a sentence may have. */
export const MOST_WORDS = 25;

/** Words that name no actor. */
const NO_ACTOR =
  /\b(whoever|whomever|nobody|somebody|someone|anybody|anyone|everybody|everyone|no one|whatever|whichever)\b/i;

/** What is wrong with the sentences of a file, as `path: why: sentence`. */
export function faultsOf(path: string, text: string): string[] {
  return sentencesOf(path, text).flatMap((sentence) => {
    const [word] = NO_ACTOR.exec(sentence.text) ?? [];
    if (word !== undefined) return `${path}: ${word}: ${sentence.text}`;
    return sentence.words > MOST_WORDS ? `${path}: ${sentence.words} words: ${sentence.text}` : [];
  });
}
