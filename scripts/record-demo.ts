/**
 * `npm run record-demo` plays the demo and draws docs/demo.svg: six lines of what it printed, for
 * light and dark pages, narrow enough for a phone. Hides where the demo says each of them.
 */
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const WIDTH = 420;
const ROW = 26;
const MARGIN = 16;
/** Where the second column begins. */
const CAME = 136;

const STYLES = `
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #1f2328 }
rect { fill: #f6f8fa; stroke: #d1d9e0 }
.no { fill: #b3261e }
.yes { fill: #116329 }
.dim { fill: #59636e }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  rect { fill: #151b23; stroke: #3d444d }
  .no { fill: #ff8f88 }
  .yes { fill: #7ee787 }
  .dim { fill: #9198a1 }
}`;

/** What a line of the drawing says, and where the demo prints that. */
interface Line {
  readonly call: string;
  readonly came: string;
  readonly style: 'no' | 'yes' | 'dim';
  readonly printed: RegExp;
}

const LINES: readonly Line[] = [
  {
    call: 'tools/list',
    came: 'cart_add_item, cart_view',
    style: 'dim',
    printed: /tools\/list\n +cart_add_item .*\n +cart_view .*\n/,
  },
  {
    call: 'cart_pay',
    came: 'refused: call cart_add_item first',
    style: 'no',
    printed: /cart_pay\(\) refused\n.*"empty".* To reach cart_pay, call cart_add_item, then/,
  },
  {
    call: 'cart_add_item',
    came: 'done; cart_checkout is listed now',
    style: 'yes',
    printed:
      /cart_add_item\(tea\) succeeded\n[\s\S]*?State: has_items\n[\s\S]*?\n {4}cart_checkout /,
  },
  {
    call: 'cart_checkout',
    came: 'done; cart_pay is listed now',
    style: 'yes',
    printed: /cart_checkout\(\) succeeded\n[\s\S]*?State: payment\n[\s\S]*?\n {4}cart_pay /,
  },
  {
    call: 'kill -9',
    came: 'new server, same session',
    style: 'dim',
    printed: /killed \(SIGKILL\) and started again; the client goes on in its session/,
  },
  {
    call: 'cart_pay ×2',
    came: 'at once: one is done, one refused',
    style: 'yes',
    printed:
      /Two calls of cart_pay at once.*\n {2}cart_pay\(\) succeeded\n[\s\S]*? {2}cart_pay\(\) refused/,
  },
];

/**
 * The drawing of a demo that printed this text.
 *
 * @throws Error where the demo has not done what a line says
 */
export function drawDemo(printed: string): string {
  const rows = LINES.map(({ call, came, style, printed: proof }, at) => {
    if (!proof.test(printed)) throw new Error(`the demo does not print: ${call} ${came}`);
    const y = Math.round(MARGIN + (at + 0.67) * ROW);
    return `<text x="${MARGIN}" y="${y}">${call}</text><text x="${CAME}" y="${y}" class="${style}">${came}</text>\n`;
  });
  const height = 2 * MARGIN + LINES.length * ROW;
  const words = LINES.map(({ call, came }) => `${call}: ${came}.`).join(' ');
  return `<svg xmlns="http://www.w3.org/2000/svg" role="img" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}">
<title>${words}</title>
<style>${STYLES}
</style>
<rect x="0.5" y="0.5" width="${WIDTH - 1}" height="${height - 1}" rx="8"/>
${rows.join('')}</svg>
`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const demo = fileURLToPath(new URL('../examples/express-checkout/demo.ts', import.meta.url));
  const printed = execFileSync(process.execPath, ['--import', 'tsx', demo], { encoding: 'utf8' });
  writeFileSync(new URL('../docs/demo.svg', import.meta.url), drawDemo(printed));
}
