/** How the demo's lines look on a terminal. Hides where they break, and which have a colour. */
import { stdout } from 'node:process';

const COLOURS: readonly (readonly [beginning: RegExp, colour: number])[] = [
  [/^-+$/, 90],
  [/^\S/, 1],
  [/^ {2}\S.* refused$/, 31],
  [/^ {2}\S.* succeeded$/, 32],
  [/^ {4}<- /, 36],
  [/^ {4}\[System: /, 33],
];

/** Prints lines: as they are, or for a terminal in its width and its colours. */
export function print(text: string): void {
  console.log(stdout.isTTY ? drawn(text, stdout.columns || 80, stdout.hasColors()) : text);
}

/** The lines of a text, broken between words to so many columns, each indented as it was. */
export function drawn(text: string, columns: number, hasColours: boolean): string {
  return text
    .split('\n')
    .map((line) => {
      const colour = COLOURS.find(([beginning]) => beginning.test(line))?.[1];
      const rows = wrapped(line, columns).join('\n');
      return hasColours && colour !== undefined ? `\u001b[${colour}m${rows}\u001b[0m` : rows;
    })
    .join('\n');
}

function wrapped(line: string, columns: number): string[] {
  const indent = ' '.repeat(line.length - line.trimStart().length);
  const rows = [line];
  for (let last = line; last.length > columns; last = rows.at(-1) ?? '') {
    const end = last.lastIndexOf(' ', columns);
    if (end <= indent.length) break;
    rows.splice(-1, 1, last.slice(0, end), indent + last.slice(end + 1));
  }
  return rows;
}
