/**
 * `npm run record-demo` plays the demo and draws what it prints as docs/demo.svg: a terminal whose
 * lines appear one after another. Where motion is unwanted or not supported, all lines are shown.
 */
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const COMMAND = 'npm run demo';
const COLUMNS = 100;
const ROW = 16;
const COLUMN = 7.25;
const MARGIN = 16;
const BAR = 32;
/** How long after the line before it a line appears. */
const LINE_SECONDS = 0.3;

/** The class of the styles for a line: the first whose pattern matches. */
const KINDS: readonly (readonly [RegExp, string])[] = [
  [/^\$ |^-+$/, 'dim'],
  [/^\S/, 'head'],
  [/^ {2}\S.* refused$/, 'no'],
  [/^ {2}\S.* succeeded$/, 'yes'],
  [/^ {4}<- /, 'told'],
  [/^ {4}\[System: /, 'system'],
];

const STYLES = `
text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #c9d1d9 }
.dim { fill: #8b949e }
.head { fill: #ffffff; font-weight: bold }
.no { fill: #ff7b72 }
.yes { fill: #7ee787 }
.told { fill: #79c0ff }
.system { fill: #e3b341 }
@keyframes show { from { opacity: 0 } }
@media (prefers-reduced-motion: no-preference) {
  g { animation: show 1ms both; animation-delay: calc(var(--at) * ${LINE_SECONDS}s) }
}`;

/** The drawing of a terminal in which the demo printed this text. */
export function drawTerminal(printed: string): string {
  const lines = [`$ ${COMMAND}`, '', ...printed.trimEnd().split('\n')];
  let row = 0;
  const drawn = lines.map((line, at) => {
    const kind = KINDS.find(([beginning]) => beginning.test(line))?.[1];
    const rows = wrapped(line).map((text) => drawRow(text, row++, kind));
    return line === '' ? '' : `<g style="--at:${at}">${rows.join('')}</g>\n`;
  });
  const width = Math.ceil(COLUMNS * COLUMN + 2 * MARGIN);
  const height = BAR + row * ROW + MARGIN;
  const lights = ['#ff5f57', '#febc2e', '#28c840'].map(
    (colour, at) => `<circle cx="${20 + at * 18}" cy="18" r="5.5" fill="${colour}"/>`,
  );
  const size = `width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`;
  const frame = `x="0.5" y="0.5" width="${width - 1}" height="${height - 1}" rx="8"`;
  return `<svg xmlns="http://www.w3.org/2000/svg" role="img" ${size}>
<title>What ${COMMAND} prints</title>
<style>${STYLES}
</style>
<rect ${frame} fill="#0d1117" stroke="#484f58"/>
${lights.join('')}
${drawn.join('')}</svg>
`;
}

function drawRow(text: string, row: number, kind: string | undefined): string {
  const indent = text.length - text.trimStart().length;
  const x = MARGIN + indent * COLUMN;
  const y = BAR + (row + 0.75) * ROW;
  const style = kind === undefined ? '' : ` class="${kind}"`;
  // The columns stay the same in every font.
  const length = ((text.length - indent) * COLUMN).toFixed(1);
  // Several spaces would be shown as one.
  const words = escaped(text.trimStart()).replaceAll('  ', '\u00a0\u00a0');
  return text === ''
    ? ''
    : `<text x="${x}" y="${y}" textLength="${length}"${style}>${words}</text>`;
}

/** A line in rows of the terminal, broken between words and indented as it was. */
function wrapped(line: string): string[] {
  const indent = ' '.repeat(line.length - line.trimStart().length);
  const rows = [line];
  for (let last = line; last.length > COLUMNS; last = rows.at(-1) ?? '') {
    const end = last.lastIndexOf(' ', COLUMNS);
    rows.splice(-1, 1, last.slice(0, end), indent + last.slice(end + 1));
  }
  return rows;
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const demo = fileURLToPath(new URL('../examples/express-checkout/demo.ts', import.meta.url));
  const printed = execFileSync(process.execPath, ['--import', 'tsx', demo], { encoding: 'utf8' });
  writeFileSync(new URL('../docs/demo.svg', import.meta.url), drawTerminal(printed));
}
