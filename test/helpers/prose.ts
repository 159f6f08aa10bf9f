/**
 * The sentences that a person reads: those of comments in code, and of prose in Markdown. Hides what
 * is no sentence: code, links' targets, headings, and the edges of list items and table cells.
 */
export interface Sentence {
  readonly text: string;
  /** Where it begins in its file, counted from 1. */
  readonly line: number;
  /** Inline code counts as one word. */
  readonly words: number;
}

/** The sentences of a file, by its ending. */
export function sentencesOf(path: string, text: string): Sentence[] {
  const blocks = path.endsWith('.md') ? proseOf(text) : commentsOf(text);
  return blocks.flatMap(splitIntoSentences);
}

/** A paragraph, a list item or a table cell, with its line breaks. */
interface Block {
  readonly text: string;
  readonly line: number;
}

/** The paragraphs, list items and table cells of a page. */
function proseOf(markdown: string): readonly Block[] {
  const blocks = new Blocks();
  let isCode = false;
  for (const line of markdown.split('\n')) {
    blocks.nextLine();
    const isFence = /^\s*```/.test(line);
    if (isFence) isCode = !isCode;
    if (isCode || isFence || line.trim() === '' || /^#|^\s*<!--/.test(line)) blocks.end();
    else if (/^\s*\|/.test(line)) for (const cell of line.split(/(?<!\\)\|/)) blocks.addWhole(cell);
    else blocks.add(line.replace(/^\s*>/, ''), /^\s*([-*]|\d+\.)\s/.test(line));
  }
  return blocks.all();
}

/** The comments of a source file: a paragraph or a list item each. */
function commentsOf(source: string): readonly Block[] {
  const blocks = new Blocks();
  let isComment = false;
  for (const line of source.split('\n').map((each) => each.trim())) {
    blocks.nextLine();
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
  readonly #found: Block[] = [];
  #lines: string[] = [];
  #line = 0;
  #from = 0;

  nextLine(): void {
    this.#line++;
  }

  add(line: string, isNew: boolean): void {
    if (isNew) this.end();
    if (this.#lines.length === 0) this.#from = this.#line;
    this.#lines.push(line.trim());
  }

  addWhole(text: string): void {
    this.end();
    if (text.trim() !== '') this.add(text, true);
    this.end();
  }

  end(): void {
    if (this.#lines.length > 0)
      this.#found.push({ text: this.#lines.join('\n'), line: this.#from });
    this.#lines = [];
  }

  all(): readonly Block[] {
    this.end();
    return this.#found;
  }
}

const breaksIn = (text: string): number => text.split('\n').length - 1;

/** A colon or a semicolon in front of a capital ends a sentence too. */
function splitIntoSentences(block: Block): Sentence[] {
  const text = block.text
    .replace(/`[^`]*`/g, (code) => `X${'\n'.repeat(breaksIn(code))}`)
    .replace(/\{@link(\s)([^}]*)\}/g, '$1$2')
    .replace(/!?\[([^\]]*)\]\([^)]*\)/g, '$1');
  let { line } = block;
  return text.split(/(?<=[.!?:;]\s*)(?<=\s)(?=[A-Z"(*])/).map((sentence) => {
    const words = sentence.split(/\s+/).filter((word) => /[A-Za-z0-9]/.test(word));
    const found = { text: sentence.trim().replaceAll('\n', ' '), line, words: words.length };
    line += breaksIn(sentence);
    return found;
  });
}

/** The most words that a sentence may have. */
export const MOST_WORDS = 25;

/** Words that name no actor. */
const NO_ACTOR =
  /\b(whoever|whomever|nobody|somebody|someone|anybody|anyone|everybody|everyone|no one|whatever|whichever)\b/i;

/** What is wrong with the sentences of a file, as `path:line: why: sentence`. */
export function faultsOf(path: string, text: string): string[] {
  return sentencesOf(path, text).flatMap((sentence) => {
    const [word] = NO_ACTOR.exec(sentence.text) ?? [];
    const isLong = sentence.words > MOST_WORDS;
    const why = word ?? (isLong ? `${sentence.words} words` : undefined);
    return why === undefined ? [] : `${path}:${sentence.line}: ${why}: ${sentence.text}`;
  });
}

/** Figures that a reader whose first language is not English reads twice, and the field's words. */
const FIGURES: readonly (readonly [RegExp, string])[] = [
  [/\b(?:tells?|telling|told)\s(?:\S+\s){0,3}?apart\b/gi, 'distinguish'],
  [/\b(?:tells?|telling|told|untold)\b/gi, 'report, notify, say, get, read or know'],
  [/\b(?:hears?|heard|hearing|unheard)\b/gi, 'receive, get, read or be notified'],
  [/\b(?:stands?|stood|standing)[\s*/]+for\b/gi, 'mean, match or replace'],
];

/** A bus's public `hears()`, what health says of it, and what a refusal asks of a model. */
const NO_FIGURE = /\b[Tt]ell the user\b|(?<=['".#])hears\b|\bhears(?=[?(:])|\bget hears\b/g;

/** Those in a file, as `path:line: "word": write …`. Inline code of a page is none. */
export function figuresOf(path: string, text: string): string[] {
  const blank = (found: string): string => found.replace(/[^\n]/g, 'X');
  const prose = path.endsWith('.md') ? text.replace(/`[^`\n]*`|\]\([^)]*\)/g, blank) : text;
  let rest = prose.replace(NO_FIGURE, blank);
  const found = FIGURES.flatMap(([figure, instead]) => {
    const here = [...rest.matchAll(figure)];
    rest = rest.replace(figure, blank);
    return here.map(({ 0: word, index }) => ({ word, instead, line: lineOf(text, index) }));
  });
  return found
    .sort((a, b) => a.line - b.line)
    .map(({ word, instead, line }) => `${path}:${line}: "${word}": write ${instead}`);
}

const lineOf = (text: string, index: number): number => breaksIn(text.slice(0, index)) + 1;
