/**
 * Reads JSON that people write. Hides how a mistake is found, and how it is reported: where to edit
 * the file, and what to write there.
 */
import {
  createScanner,
  type Node,
  type ParseError,
  parseTree,
  printParseErrorCode,
} from 'jsonc-parser';
import { showValue } from '../../../src/basics/options.ts';
import { Failure } from './command-line.ts';

/**
 * The value of strict JSON. A name that stands twice is a mistake: the first of the two would be
 * lost unseen.
 *
 * @throws Failure naming line and column
 */
export function parseJson(text: string): unknown {
  // Editors on Windows put it in front.
  const json = text.replace(/^\uFEFF/, '');
  checkDepth(json);
  const mistakes: ParseError[] = [];
  const tree = parseTree(json, mistakes, { disallowComments: true });
  const [first] = mistakes;
  if (first !== undefined) throw new Failure(inWords(json, first));
  if (tree !== undefined) checkNames(json, tree);
  return JSON.parse(json);
}

/** Deeper than any gate, and far from what a parser that calls itself could take. */
const DEEPEST = 200;

function checkDepth(json: string): void {
  const scanner = createScanner(json, true);
  let depth = 0;
  while (scanner.getPosition() < json.length) {
    scanner.scan();
    const begins = json[scanner.getTokenOffset()];
    if (begins === '{' || begins === '[') depth += 1;
    if (begins === '}' || begins === ']') depth -= 1;
    if (depth > DEEPEST)
      throw new Failure(
        `${placeAt(json, scanner.getTokenOffset())}: more than ${DEEPEST} brackets are open here`,
      );
  }
}

type Code = ReturnType<typeof printParseErrorCode>;

const WORDS: Readonly<Record<Code, string>> = {
  InvalidSymbol: 'names and strings need double quotes, and other words are true, false and null',
  InvalidNumberFormat: 'this is no number',
  PropertyNameExpected: 'expected a name in double quotes',
  ValueExpected: 'expected a value',
  ColonExpected: 'a colon is missing',
  CommaExpected: 'a comma is missing',
  CloseBraceExpected: 'the file ends too early: a "}" is missing',
  CloseBracketExpected: 'the file ends too early: a "]" is missing',
  EndOfFileExpected: 'the JSON ends before this: a bracket is one too many, or one is missing',
  InvalidCommentToken: 'JSON has no comments',
  UnexpectedEndOfComment: 'JSON has no comments',
  UnexpectedEndOfString: 'the closing quote of this string is missing',
  UnexpectedEndOfNumber: 'a digit is missing in this number',
  InvalidUnicode: 'expected four hexadecimal digits after each \\u of this string',
  InvalidEscapeCharacter: 'a backslash of this string needs to be written twice: \\\\',
  InvalidCharacter: 'this string has a control character: write a tab as \\t',
  '<unknown ParseErrorCode>': 'this is no JSON',
};

function inWords(json: string, { error, offset, length }: ParseError): string {
  if (json.trim() === '') return 'the file is empty';
  const code = printParseErrorCode(error);
  const token = json.slice(offset, offset + length);
  const before = tokenBefore(json, offset);
  if (code === 'CommaExpected' || code === 'ColonExpected') {
    // A list that ends as an object does, or the other way round, lacks its own end.
    const end = { '}': 'a "]" is missing', ']': 'a "}" is missing' }[token];
    return `${placeAt(json, before.end)}: ${end ?? WORDS[code]} after ${shortened(before.text)}`;
  }
  if (code === 'ValueExpected' || code === 'PropertyNameExpected') {
    if (token === '') return `${placeAt(json, offset)}: the file ends too early`;
    if (before.text === ',' && /[}\]]/.test(token))
      return `${placeAt(json, before.end - 1)}: this comma is one too many`;
    if (/^[,{[]$/.test(before.text) && token === ',')
      return `${placeAt(json, offset)}: this comma is one too many`;
  }
  const got = code === 'InvalidSymbol' ? `unexpected ${shortened(token)}: ` : '';
  return `${placeAt(json, offset)}: ${got}${WORDS[code]}`;
}

function tokenBefore(json: string, offset: number): { text: string; end: number } {
  const scanner = createScanner(json, true);
  let [start, end] = [0, 0];
  scanner.scan();
  while (scanner.getTokenOffset() < offset) {
    start = scanner.getTokenOffset();
    end = start + scanner.getTokenLength();
    scanner.scan();
  }
  return { text: json.slice(start, end), end };
}

const LONGEST = 60;

function shortened(token: string): string {
  return token.length <= LONGEST ? token : `${token.slice(0, LONGEST)}…`;
}

function checkNames(json: string, node: Node): void {
  const names = new Set<unknown>();
  for (const child of node.children ?? []) {
    const [name] = child.type === 'property' ? (child.children ?? []) : [];
    if (name !== undefined && names.has(name.value))
      throw new Failure(`${placeAt(json, name.offset)}: ${showValue(name.value)} is there twice`);
    names.add(name?.value);
    checkNames(json, child);
  }
}

function placeAt(json: string, offset: number): string {
  const before = json.slice(0, offset).split('\n');
  return `line ${before.length}, column ${(before.at(-1)?.length ?? 0) + 1}`;
}
