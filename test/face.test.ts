import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ERROR_CODES } from '../src/basics/errors.ts';
import { ROOT } from './helpers/consumer.ts';
import { Page } from './helpers/markdown.ts';
import { kindOfDiagram } from './helpers/mermaid.ts';
import { faultsOf, figuresOf, sentencesOf } from './helpers/prose.ts';
import { REASONS } from './helpers/reasons.ts';
import { reportOf, warn } from './helpers/warnings.ts';

const MOST_COLUMNS = 100;

const readme = new Page('README.md');
const filesIn = (folder: string, ...endings: readonly string[]): string[] =>
  readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((path) => endings.some((ending) => path.endsWith(ending)))
    .filter((path) => !/(^|\/)(node_modules|dist)\//.test(path))
    .map((path) => `${folder}/${path}`)
    .sort();
const textOf = (path: string): string => readFileSync(join(ROOT, path), 'utf8');

const CODE = [
  ...filesIn('src', '.ts'),
  ...filesIn('examples', '.ts'),
  ...readdirSync(join(ROOT, 'packages')).flatMap((name) => [
    ...filesIn(`packages/${name}/src`, '.ts', '.tsx'),
  ]),
];
const AT_THE_TOP = [
  ...['README.md', 'CHANGELOG.md', 'CONTRIBUTING.md', 'ARCHITECTURE.md', 'SECURITY.md'],
];
const PAGES = [...AT_THE_TOP, ...filesIn('docs', '.md'), ...filesIn('examples', '.md')];

describe('the README', () => {
  it('stays short enough to be read', () => {
    expect(readme.lines.length).toBeLessThan(200);
  });

  it('shows code before line 30', () => {
    expect(readme.lines.findIndex((line) => line.startsWith('```ts'))).toBeLessThan(29);
  });
});

describe('a page of the docs', () => {
  const books = ['start', 'build', 'operate', 'reference'];

  it.each(books.flatMap((book) => filesIn(`docs/${book}`, '.md')))(
    'says what it is for, and shows it, before anything else: %s',
    (path) => {
      const [title = '', empty, ...rest] = new Page(path).lines;
      expect([title.slice(0, 2), empty]).toEqual(['# ', '']);
      expect(rest[0]).toMatch(/^[\w`[*]/);
      expect(rest.slice(0, 25).some((line) => line.startsWith('```'))).toBe(true);
    },
  );
});

describe('the reference', () => {
  const reference = filesIn('docs/reference', '.md');
  /** The pages of the reference with a row or a section of that name. */
  const pagesOn = (name: string): string[] =>
    reference.filter((path) => {
      const { lines } = new Page(path);
      return lines.some((line) => line === `## ${name}` || line.startsWith(`| \`${name}\` |`));
    });

  it('has each reason of a refusal on one page', () => {
    const rows = new Page('docs/reference/refusals.md').tableAfter('in the same words');
    expect(rows.map(([reason]) => reason).sort()).toEqual([...REASONS].sort());
  });

  it('has each event on one page', () => {
    const rows = new Page('docs/reference/events.md').tableAfter('<!-- events -->');
    for (const [type = ''] of rows) expect([type, pagesOn(type)]).toEqual([type, [EVENTS_PAGE]]);
    // test/events.test.ts compares the table with the type.
    expect(new Set(rows.map(([type]) => type)).size).toBe(rows.length);
  });

  it('has each error code on one page', () => {
    for (const code of Object.keys(ERROR_CODES))
      expect([code, pagesOn(code)]).toEqual([code, ['docs/reference/errors.md']]);
  });

  it('has each table of options, and no other page has one', () => {
    const tables = PAGES.filter((path) => new Page(path).lines.some(isHeadOfOptions));
    expect(tables).toEqual(['docs/reference/options.md']);
    const marks = textOf('docs/reference/options.md').match(/<!-- options: .* -->/g) ?? [];
    expect([...new Set(marks)]).toEqual(marks);
  });
});

const EVENTS_PAGE = 'docs/reference/events.md';
const isHeadOfOptions = (line: string): boolean => /^\| option /.test(line);

describe('a picture', () => {
  const pictures = PAGES.flatMap((path) =>
    new Page(path)
      .blocks('mermaid')
      .map((text, index): [string, string] => [`${path}, number ${index + 1}`, text]),
  );

  it.each(pictures)('can be drawn: %s', async (_, text) => {
    expect(await kindOfDiagram(text)).toMatch(/^(sequence|stateDiagram|flowchart-v2)$/);
  });

  it('that has a fault is found', async () => {
    await expect(kindOfDiagram('flowchart TD\n  a -- b')).rejects.toThrow();
    expect(pictures.length).toBeGreaterThan(8);
  });
});

describe('a line', () => {
  const isWide = (line: string): boolean =>
    line.length > MOST_COLUMNS && !/https?:\/\/\S{40}/.test(line);

  it('of code has at most 100 columns, or its author is warned', ({ task }) => {
    warn(
      task,
      CODE.flatMap((path) =>
        textOf(path)
          .split('\n')
          .flatMap((line, at) =>
            isWide(line) ? `${path}:${at + 1}: ${line.length} columns: ${line.trim()}` : [],
          ),
      ),
    );
  });

  it('of a page has at most 100 columns, but in tables and quoted messages', () => {
    const wide = PAGES.flatMap((path) =>
      new Page(path).lines.flatMap((line, at) =>
        isWide(line) && !/^(\||\[System: |!\[)/.test(line) ? `${path}:${at + 1}` : [],
      ),
    );
    expect(wide).toEqual([]);
  });
});

describe('a sentence', () => {
  it('of a comment has at most 25 words, and names its actor, or its author is warned', ({
    task,
  }) => {
    warn(
      task,
      CODE.flatMap((path) => faultsOf(path, textOf(path))),
    );
  });

  it.each(PAGES)('of a page has at most 25 words, and names its actor: %s', (path) => {
    expect(faultsOf(path, textOf(path))).toEqual([]);
  });

  it('ends where code, a list item or a table cell begins', () => {
    const wordsOf = (path: string, text: string) =>
      sentencesOf(path, text).map(({ words }) => words);
    expect(wordsOf('a.md', 'One `two three` [four](five.md).\nSix. Seven!')).toEqual([3, 1, 1]);
    expect(wordsOf('a.md', '# Title\n\n- one\n  two\n- three\n\n| a | b c |\n')).toEqual([
      2, 1, 1, 2,
    ]);
    expect(wordsOf('a.md', '```ts\n// one two\n```\none')).toEqual([1]);
    expect(
      wordsOf('a.ts', '/** One {@link Two}. */\na(); // left\n/**\n * three\n * four\n */'),
    ).toEqual([2, 2]);
    expect(wordsOf('a.ts', '// one two\n// three\nb();\n// - four\n// - five six')).toEqual([
      3, 1, 2,
    ]);
    expect(wordsOf('a.ts', '/**\n * | one | two |\n * | --- | --- |\n */')).toEqual([1, 1, 0, 0]);
  });

  it('that breaks a rule is found at its line', () => {
    expect(faultsOf('a.ts', '// Nobody asks.')).toEqual(['a.ts:1: Nobody: Nobody asks.']);
    const long = `One${' more'.repeat(25)}`;
    expect(faultsOf('a.md', `# Title\n\nOne\n\`two\nthree\`. Four.\n${long}.`)).toEqual([
      `a.md:6: 26 words: ${long}.`,
    ]);
    expect(faultsOf('a.ts', `a();\n/**\n * Short.\n * ${long}.\n */`)).toEqual([
      `a.ts:4: 26 words: ${long}.`,
    ]);
  });
});

describe('a word', () => {
  it.each([...PAGES, ...CODE])('is that of the field, and no figure: %s', (path) => {
    expect(figuresOf(path, textOf(path))).toEqual([]);
  });

  it('that is a figure is found, with what to write instead', () => {
    expect(figuresOf('a.md', 'One.\n\nA star stands for text, which `told` is not.')).toEqual([
      'a.md:3: "stands for": write mean, match or replace',
    ]);
    expect(figuresOf('a.ts', '/** Tells one from two.\n * It stands\n * for each. */')).toEqual([
      'a.ts:1: "Tells": write report, notify, say, get, read or know',
      'a.ts:2: "stands\n * for": write mean, match or replace',
    ]);
    expect(figuresOf('a.ts', "b('what told the two apart was heard');")).toEqual([
      'a.ts:1: "told the two apart": write distinguish',
      'a.ts:1: "heard": write receive, get, read or be notified',
    ]);
  });

  it('that is a public name, or asks a model to tell its user, is none', () => {
    expect(figuresOf('a.ts', "if (bus.hears?.()) say('hears', 'Tell the user.');")).toEqual([]);
    expect(figuresOf('a.md', '`hears()` [says](b.md#what-it-hears) `"bus": "hears"`')).toEqual([]);
  });
});

it('prints each warning with its file and line, and their number', () => {
  expect(reportOf([])).toBe('');
  expect(reportOf(['src/a.ts:1: 26 words: …', 'src/b.ts:2: nobody: …'])).toBe(
    '\n  warning  src/a.ts:1: 26 words: …\n  warning  src/b.ts:2: nobody: …\n\n' +
      '2 warnings. Warnings fail no test: see Style in CONTRIBUTING.md.\n',
  );
});
