/** What the command says while it runs. Hides how a line looks, and what no line may hold. */
import type { InterlockEvent } from 'mcp-interlock';

/** `text` for people, `json` for machines: one object a line, with `at` and `type`. */
export type LogFormat = 'text' | 'json';

export const LOG_FORMATS: readonly LogFormat[] = ['text', 'json'];

/** Beginnings whose ends are reported too. People see the ends only. */
const QUIET: readonly string[] = [
  ...['request.started', 'call.started', 'step.started', 'step.committed', 'list.changed'],
];

/** What stands out in a report on a terminal: a severity, where it is, and the count at the end. */
const STANDS_OUT: readonly (readonly [pattern: RegExp, colour: number])[] = [
  [/^ {2}error\b/gm, 31],
  [/^ {2}warning\b/gm, 33],
  [/^ {4}\S+:\d+$/gm, 36],
  [/^\d+ (?:error|warning)s?\b.*$/gm, 1],
];

/**
 * A report in colours, where it goes to a terminal that has them. `NO_COLOR` and `FORCE_COLOR` in
 * the environment decide as in Node itself.
 */
export function painted(text: string, to: NodeJS.WriteStream): string {
  const { FORCE_COLOR } = process.env;
  const isForced = FORCE_COLOR !== undefined && FORCE_COLOR !== '0' && FORCE_COLOR !== 'false';
  if (!(to.isTTY ? to.hasColors() : isForced)) return text;
  return STANDS_OUT.reduce(
    (all, [pattern, colour]) => all.replace(pattern, `\u001b[${colour}m$&\u001b[0m`),
    text,
  );
}

const AUTHENTICATE = 'Ask for tokens by --jwks, or name callers by --principal';

/** What the library calls its options, and how the user of the command gives them. */
const OWN_WORDS: readonly (readonly [library: RegExp, own: string])[] = [
  // The command has no such key.
  [/; or, where the id is a secret that suffices, give sessionStore\(.*? \}\)/g, ''],
  [/give sessionStore\(\{ key: (.+?) \}\)(?=[;:,. ]|$)/g, 'start the gate with $1'],
  [/sessionStore\(\{ key: (.+?) \}\)(?=[;:,. ]|$)/g, '$1'],
  [/\[((?:\w+Key\(\)(?:, )?)+)\]/g, '$1'],
  [/managedHandle\(\{ start: '(\w+)', argument: '(\w+)' \}\)/g, '--key managed:$2=$1'],
  [/another key than sessionKey\(\)/g, 'another --key than session'],
  [/\b(session|principal|conversation)Key\(\),?/g, '--key $1'],
  [
    /give fsmGate\(gate, \{ visibility: .*? : '\w+' \}\)/g,
    'start the gate with --visibility stable',
  ],
  [
    /Give sessionStore\(\{ store \}\) a store that (.*?), such as redisStore\(\) or postgresStore\(\)/g,
    'Give a --store that $1, such as redis://… or postgres://…',
  ],
  [/Mount authentication in front(?: that [\w ]+?(?: in req\.auth)?)?(?=[,.;]|$)/gi, AUTHENTICATE],
  [/, or give sessionStore\(\{ principal \}\)/g, ''],
  [/sessionStore\(\{ principal \}\)/g, '--principal'],
  [/: runsOf\(gate, \{ store \}\)\.resolve\(.*?, 'succeeded'\), or 'failed'/g, ''],
  [/more sessions than maxSessionsPerPrincipal or maxSessionsPerClient/g, 'too many sessions'],
  [/\bmaxStepMs\b/g, '--max-step'],
  [/\bidleMs\b/g, '--idle'],
];

/** Advice that a user of the command can follow. */
export function inOwnWords(text: string): string {
  return OWN_WORDS.reduce((all, [library, own]) => all.replace(library, own), text);
}

/** Writes the log to standard output. Runs are named by digests: a key is a credential. */
export class Log {
  readonly #format: LogFormat;

  constructor(format: LogFormat) {
    this.#format = format;
  }

  /** For `sessionStore({ onEvent })`. */
  readonly event = (event: InterlockEvent): void => {
    const { at, type, ...said } = event;
    const isSaid = 'message' in said && typeof said.message === 'string';
    this.#write(at, type, isSaid ? { ...said, message: inOwnWords(said.message) } : said);
  };

  /** A likely mistake. */
  readonly warn = (message: string): void => this.say('warning', { message: inOwnWords(message) });

  /** Something that is no event of the middlewares. `text`: how people read it. */
  say(type: string, said: Readonly<Record<string, unknown>>, text?: string): void {
    if (text !== undefined && this.#format === 'text') printLine(text);
    else this.#write(Date.now(), type, said);
  }

  #write(at: number, type: string, said: Readonly<Record<string, unknown>>): void {
    if (this.#format === 'json') printLine(JSON.stringify({ at, type, ...said }));
    else if (!QUIET.includes(type))
      printLine(
        [new Date(at).toISOString(), type, ...Object.entries(said).flatMap(pair)].join(' '),
      );
  }
}

/** Clients choose the names of tools: what is no plain word is quoted, and stays on its line. */
function pair([name, value]: [string, unknown]): string[] {
  if (value === undefined || value === null) return [];
  if (typeof value === 'number') return [`${name}=${Math.round(value)}`];
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  return [`${name}=${/^[\w.:/@-]+$/.test(text) ? text : JSON.stringify(text)}`];
}

/**
 * Control characters, those that order or hide text, and halves of characters: a terminal acts on
 * them, or shows another text than the line has. The line separators are among them.
 */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;

/** Clients choose parts of a line. JSON may hold escapes only within its strings, as here. */
export function printLine(line: string): void {
  process.stdout.write(lineOf(line));
}

/** The text as one line that a terminal shows as it is, with its end. */
export function lineOf(text: string): string {
  return `${text.replace(UNSEEN, escaped)}\n`;
}

function escaped(found: string): string {
  const units = found.split('').map((unit) => unit.charCodeAt(0).toString(16).padStart(4, '0'));
  return units.map((unit) => `\\u${unit}`).join('');
}
