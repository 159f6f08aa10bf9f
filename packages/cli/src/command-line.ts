/**
 * Reads what follows the name of a command. Hides how options are recognised, checked and
 * explained. What comes out is typed, and each value has its unit.
 */
import { parseArgs } from 'node:util';
import { nearestName } from '../../../src/basics/names.ts';

/** A mistake in the command line: the command ends with the status 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** The command was not able to do its work: it ends with the status 1 and these words. */
export class Failure extends Error {
  override readonly name = 'Failure';
}

/** One option of a command. */
interface OptionSpec {
  /** What follows the option, in words for the help; a switch has none. */
  readonly takes?: string;
  /** Whether it may be given more than once. */
  readonly many?: true;
  readonly help: string;
}

type Specs = Readonly<Record<string, OptionSpec>>;

type ValueOf<Spec extends OptionSpec> = Spec extends { takes: string }
  ? Spec extends { many: true }
    ? readonly string[]
    : string | undefined
  : boolean;

/** What was given for each option. */
export type Given<S extends Specs> = { readonly [Name in keyof S]: ValueOf<S[Name]> };

/** A command: how it is called, and what its options are. */
export interface CommandSpec<S extends Specs = Specs> {
  readonly usage: string;
  /** Whether it also works without the file of a gate. Default: no. */
  readonly isFileOptional?: boolean;
  readonly about: string;
  readonly options: S;
}

/**
 * Reads the arguments of a command.
 *
 * @returns the file that it is about, empty where it may be left out and was, and its options
 * @throws UsageError naming what is wrong, and what is right
 */
export function parseCommand<const S extends Specs>(
  spec: CommandSpec<S>,
  args: readonly string[],
): { readonly file: string; readonly given: Given<S> } {
  const specs: Specs = spec.options;
  const { tokens } = parseArgs({
    args: [...args],
    options: Object.fromEntries(
      Object.entries(specs).map(([name, { takes }]) => [
        name,
        { type: takes === undefined ? 'boolean' : 'string', multiple: true },
      ]),
    ),
    strict: false,
    allowPositionals: true,
    tokens: true,
  });
  const files: string[] = [];
  const values = new Map<string, string[]>();
  for (const token of tokens) {
    if (token.kind === 'positional') files.push(token.value);
    if (token.kind !== 'option') continue;
    const value = checked(specs, token.name, token.rawName, token.value);
    values.set(token.name, [...(values.get(token.name) ?? []), value]);
  }
  const [file, second] = files;
  if (file === undefined && spec.isFileOptional !== true)
    throw new UsageError(`give the file of a gate: ${spec.usage}`);
  if (second !== undefined) throw new UsageError(`unexpected ${JSON.stringify(second)}`);
  const given = Object.entries(spec.options).map(([name, option]) => [
    name,
    givenValue(name, option, values.get(name)),
  ]);
  return { file: file ?? '', given: Object.fromEntries(given) as Given<S> };
}

function checked(specs: Specs, name: string, rawName: string, value: string | undefined): string {
  const option = Object.hasOwn(specs, name) ? specs[name] : undefined;
  if (option === undefined || !rawName.startsWith('--'))
    throw new UsageError(`unknown option ${rawName}, ${rightOptions(name, Object.keys(specs))}`);
  if (option.takes === undefined) {
    if (value === undefined) return 'true';
    throw new UsageError(`--${name} takes no value, got ${JSON.stringify(value)}`);
  }
  // Another option in the value's place: the value was forgotten.
  if (value !== undefined && value !== '' && !value.startsWith('--')) return value;
  throw new UsageError(`--${name} needs a value: --${name} ${option.takes}`);
}

/** As `rightNames()` of the library says it, with each option as it is typed. */
function rightOptions(name: string, known: readonly string[]): string {
  const nearest = nearestName(name, known);
  const list = `known are ${known.map((each) => `--${each}`).join(', ')}`;
  return nearest === undefined ? list : `did you mean --${nearest}? K${list.slice(1)}`;
}

function givenValue(name: string, { takes, many }: OptionSpec, values: readonly string[] = []) {
  if (takes === undefined) return values.length > 0;
  if (many) return values;
  if (values.length > 1) throw new UsageError(`--${name} is given ${values.length} times`);
  return values[0];
}

/** Terminals have at least as many columns. */
const COLUMNS = 80;

/** Text in lines of at most so many columns, broken between words. */
function filled(text: string, columns: number): string[] {
  const lines: string[] = [];
  for (const word of text.split(/[ \n]+/)) {
    const line = lines.at(-1);
    if (line !== undefined && line.length + 1 + word.length <= columns)
      lines[lines.length - 1] = `${line} ${word}`;
    else lines.push(word);
  }
  return lines;
}

/** How a command is called. An option and what it takes stay on one line. */
export function usageOf(usage: string, before = '  '): string {
  const held = usage
    .replace(/(?<=--[\w-]+) (?=[\w'])/g, '\u00a0')
    .replace(/ \| /g, '\u00a0|\u00a0');
  const [first = '', ...more] = filled(held, COLUMNS - before.length - 4);
  const lines = [`${before}${first}`, ...more.map((each) => ' '.repeat(before.length + 4) + each)];
  return lines.join('\n').replaceAll('\u00a0', ' ');
}

/** The help of a command, as it is printed. */
export function helpOf({ usage, about, options }: CommandSpec): string {
  const rows = Object.entries({ ...options, help: { help: 'shows this' } as OptionSpec }).map(
    ([name, { takes, many, help }]) =>
      [`--${name}${takes === undefined ? '' : ` ${takes}`}${many ? ' …' : ''}`, help] as const,
  );
  const width = Math.max(...rows.map(([left]) => left.length)) + 2;
  const lines = rows.map(([left, help]) => {
    const [first = '', ...more] = filled(help, COLUMNS - width - 2);
    return [`  ${left.padEnd(width)}${first}`, ...more.map((each) => ' '.repeat(width + 2) + each)];
  });
  const words = about.split('\n\n').map((each) => filled(each, COLUMNS).join('\n'));
  return `${usageOf(usage, 'Usage: ')}\n\n${words.join('\n\n')}\n\n${lines.flat().join('\n')}\n`;
}

const UNITS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** A time in milliseconds, of `500ms`, `20s`, `15m`, `24h` or `7d`. */
export function durationOf(option: string, text: string): number {
  const [, number = '', unit = ''] = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(text) ?? [];
  if (isUnit(unit)) return Number(number) * UNITS[unit];
  throw new UsageError(
    `--${option}: expected a time such as 500ms, 20s, 15m or 24h, got ${JSON.stringify(text)}`,
  );
}

function isUnit(unit: string): unit is keyof typeof UNITS {
  return Object.hasOwn(UNITS, unit);
}

/** An address of the web, as an option gives it. */
export function urlOf(option: string, text: string, advice = ''): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol === 'http:' || url?.protocol === 'https:') return url;
  throw new UsageError(
    `--${option}: expected a URL such as http://127.0.0.1:3001/mcp, ` +
      `got ${JSON.stringify(text)}${advice}`,
  );
}

/** The address of the server behind the gate. Some users give the command that starts it. */
export function targetOf(text: string): URL {
  const isAddress = /^\S+:\d/.test(text);
  const advice = `. For a server on stdio: mcp-interlock stdio ./gate.json -- ${text}`;
  return urlOf('target', text, isAddress ? '' : advice);
}

/** One of several words. */
export function choiceOf<const Word extends string>(
  option: string,
  text: string,
  words: readonly Word[],
): Word {
  const word = words.find((each) => each === text);
  if (word !== undefined) return word;
  throw new UsageError(
    `--${option}: expected one of ${words.join(', ')}, got ${JSON.stringify(text)}`,
  );
}

/** A TCP port; 0 lets the system choose a free one. */
export function portOf(option: string, text: string): number {
  if (/^\d{1,5}$/.test(text) && Number(text) < 65_536) return Number(text);
  throw new UsageError(`--${option}: expected a port from 0 to 65535, got ${JSON.stringify(text)}`);
}
