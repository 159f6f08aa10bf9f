/**
 * The reference of the public API: each export of each entry once, with its signature, its comment,
 * and an example. A comment without an `@example` gets the shortest code of the docs that uses the
 * export, since tests compile that code.
 */
import { posix } from 'node:path';
import ts from '@typescript/typescript6';
import { type Declared, type EntrySurface, publicSurface } from '../scripts/api-report.ts';
import { placeOf } from './books.ts';

export interface ApiReference {
  /** Each page's Markdown by its place: `/api/fetch`. */
  readonly pages: ReadonlyMap<string, string>;
  /** Where each export is explained, by its name. */
  readonly links: ReadonlyMap<string, string>;
  /** The sidebar of these pages. */
  readonly entries: readonly { readonly text: string; readonly link: string }[];
}

interface Part {
  readonly place: string;
  readonly title: string;
  readonly specifier: string;
  readonly purpose: string;
  readonly declared: readonly Declared[];
  readonly shared: EntrySurface['shared'];
  readonly hidden: readonly Declared[];
}

/** What each entry is for. A new entry needs its line here. */
const PURPOSES: Readonly<Record<string, string>> = {
  'mcp-interlock': 'the middlewares and workflows',
  'mcp-interlock/ambient': 'lets `currentStep()` work without `extra`',
  'mcp-interlock/bus/postgres': 'news among instances by PostgreSQL',
  'mcp-interlock/bus/redis': 'news among instances by Redis',
  'mcp-interlock-check': 'checks, proofs and diagrams of a workflow',
  'mcp-interlock/fetch': 'the gate for handlers of the Fetch API',
  'mcp-interlock/otel': 'metrics and traces of OpenTelemetry',
  'mcp-interlock/runs': 'what an operator does with runs, and sees of them',
  'mcp-interlock/stores': 'what a store is asked and answers',
  'mcp-interlock/stores/document': 'a store on any backend that can compare and swap a document',
  'mcp-interlock/stores/memory': 'the store in memory',
  'mcp-interlock/stores/postgres': 'the store on PostgreSQL',
  'mcp-interlock/stores/redis': 'the store on Redis',
  'mcp-interlock/stores/sqlite': 'the store on SQLite',
  'mcp-interlock/stores/upstash': 'the store on Upstash',
  'mcp-interlock-testing': 'plays a workflow in your tests, and tests a store of yours',
  'mcp-interlock-cli/proxy': 'the gating proxy as a function',
  'mcp-interlock-inspector': 'the page for operators',
};

/** @param docs the text of each page of the repository, by its path without `.md` */
export function apiReference(docs: ReadonlyMap<string, string>): ApiReference {
  const { checker, entries } = publicSurface();
  const parts = entries.flatMap(({ entry: { specifier }, surface }) => partsOf(specifier, surface));
  const links = new Map<string, string>();
  for (const part of parts)
    for (const [name, link] of linksOf(part)) if (!links.has(name)) links.set(name, link);
  const writer = new Writer(checker, links, examplesIn(docs));
  const pages = new Map(parts.map((part) => [part.place, writer.page(part)]));
  pages.set('/api/index', overview(parts));
  const sidebar = parts.map(({ title, place }) => ({ text: title, link: place }));
  return { pages, links, entries: [{ text: 'All entries', link: '/api/' }, ...sidebar] };
}

/** What a page explains, the exports before what they only name. */
function linksOf({ place, declared, hidden }: Part): [name: string, link: string][] {
  return [...declared, ...hidden].map(({ name }) => [name, `${place}#${name}`]);
}

/** An entry with many types has a page for what runs, and another one for the types. */
function partsOf(specifier: string, { own, shared, hidden }: EntrySurface): Part[] {
  const purpose = PURPOSES[specifier];
  if (purpose === undefined) throw new Error(`${specifier} needs its line in api-reference.ts`);
  const place = `/api/${specifier.replace(/^mcp-interlock\//, '').replaceAll('/', '-')}`;
  const part = { place, title: specifier, specifier, purpose, shared };
  if (own.length < 60) return [{ ...part, declared: own, hidden }];
  const isType = ({ symbol }: Declared): boolean => (symbol.flags & ts.SymbolFlags.Value) === 0;
  return [
    { ...part, declared: own.filter((each) => !isType(each)), hidden: [] },
    {
      ...part,
      place: `${place}-types`,
      title: `${specifier}: types`,
      purpose: `the types of ${purpose}`,
      declared: own.filter(isType),
      shared: [],
      hidden,
    },
  ];
}

function overview(parts: readonly Part[]): string {
  const rows = parts.map(
    ({ title, place, purpose, declared }) =>
      `| [\`${title}\`](${place}) | ${purpose} | ${declared.length} |`,
  );
  return [
    '# API reference',
    'What the package and its two companions export, made from their types. Each export has one place.',
    "```ts\nimport { fsmGate, sessionStore, StateMachineGate } from 'mcp-interlock';\n```",
    `| entry | what for | exports |\n|---|---|---|\n${rows.join('\n')}`,
    'For what each option does, with its default, see [Options](/reference/options).',
  ].join('\n\n');
}

interface Example {
  readonly code: string;
  readonly from: string;
}

/** The short blocks of TypeScript in the docs, the shortest first. */
function examplesIn(docs: ReadonlyMap<string, string>): readonly Example[] {
  const all = [...docs].flatMap(([page, text]) =>
    [...text.matchAll(/^```ts\n([\s\S]*?)^```$/gm)].map(([, code = '']) => ({ code, from: page })),
  );
  return all
    .filter(({ code }) => code.split('\n').length < 40)
    .sort((one, other) => one.code.length - other.code.length);
}

class Writer {
  readonly #checker: ts.TypeChecker;
  readonly #links: ReadonlyMap<string, string>;
  readonly #examples: readonly Example[];
  /** What the page itself explains. Two packages may have a type of the same name. */
  #here: ReadonlyMap<string, string> = new Map();

  constructor(
    checker: ts.TypeChecker,
    links: ReadonlyMap<string, string>,
    examples: readonly Example[],
  ) {
    this.#checker = checker;
    this.#links = links;
    this.#examples = examples;
  }

  page(part: Part): string {
    const { title, specifier, purpose, declared, shared, hidden } = part;
    this.#here = new Map(linksOf(part).map(([name]) => [name, `#${name}`]));
    const isValue = ({ symbol }: Declared): boolean => (symbol.flags & ts.SymbolFlags.Value) !== 0;
    const isFunction = ({ name }: Declared): boolean => /^[a-z]/.test(name);
    const values = declared
      .filter(isValue)
      .sort((one, other) => Number(isFunction(other)) - Number(isFunction(one)));
    const types = declared.filter((each) => !isValue(each));
    const names = values.map(({ name }) => name).slice(0, 3);
    const imported = names.length > 0 ? `{ ${names.join(', ')} } from ` : '';
    const isTypes = values.length === 0 && types.length > 0;
    const first = types[0]?.name ?? '';
    const line = isTypes ? `import type { ${first} } from ` : `import ${imported}`;
    const parts = [
      `# ${title}`,
      `This page has ${purpose}.`,
      `\`\`\`ts\n${line}'${specifier}';\n\`\`\``,
    ];
    if (shared.length > 0) {
      const others = shared.map(({ name }) => this.#link(name)).join(', ');
      parts.push(`This entry also exports ${others}.`);
    }
    if (values.length > 0 && types.length > 0) parts.push('## Functions and classes');
    const depth = values.length > 0 && types.length > 0 ? '###' : '##';
    parts.push(...values.flatMap((each) => this.#section(each, depth)));
    if (values.length > 0 && types.length > 0) parts.push('## Types');
    parts.push(...types.flatMap((each) => this.#section(each, depth)));
    if (hidden.length > 0)
      parts.push(
        '## Named, and not exported',
        'The exports name these types. No entry exports them, so they may change at any time.',
        ...hidden.flatMap((each) => this.#section(each, '###')),
      );
    return `---\nlastUpdated: false\neditLink: false\n---\n\n${parts.join('\n\n')}\n`;
  }

  #section(declared: Declared, depth: string): string[] {
    const { name, symbol, texts } = declared;
    const comment = ts.displayPartsToString(symbol.getDocumentationComment(this.#checker));
    const tags = symbol.getJsDocTags(this.#checker);
    const parts = [`${depth} ${name} {#${name}}`];
    if (comment !== '') parts.push(this.#prose(comment));
    parts.push(`\`\`\`ts\n${texts.join('\n')}\n\`\`\``);
    const notes = tags.flatMap((tag) => this.#note(tag));
    const members = (symbol.declarations ?? []).flatMap((each) => this.#members(each));
    if (notes.length > 0) parts.push([...new Set(notes)].join('\n'));
    if (members.length > 0)
      parts.push(`| member | |\n|---|---|\n${[...new Set(members)].join('\n')}`);
    const named = this.#namedIn(texts.join('\n'), name);
    if (named.length > 0) parts.push(`Types: ${named.join(', ')}.`);
    parts.push(...this.#example(declared, tags));
    return parts;
  }

  #note({ name, text }: ts.JSDocTagInfo): string[] {
    const said = ts.displayPartsToString(text).trim();
    if (said === '' || name === 'example') return [];
    const [, param = '', words = said] =
      name === 'param' ? (/^(\S+)\s+(?:- )?([\s\S]*)$/.exec(said) ?? []) : [];
    const label = name === 'param' ? `\`${param}\`` : `*${name}*`;
    return [`- ${label}: ${this.#inline(words)}`];
  }

  /** A row for each member with a comment, also within the members of a member. */
  #members(node: ts.Node, path = ''): string[] {
    const rows: string[] = [];
    const visit = (child: ts.Node): void => {
      const name = ts.isConstructorDeclaration(child) ? 'constructor' : memberName(child);
      if (name === undefined) {
        ts.forEachChild(child, visit);
        return;
      }
      const full = path === '' ? name : `${path}.${name}`;
      const said = ts
        .getJSDocCommentsAndTags(child)
        .filter(ts.isJSDoc)
        .map((doc) => textOfComment(doc))
        .join(' ');
      if (said.trim() !== '')
        rows.push(`| \`${full}\` | ${this.#inline(said).replace(/(?<!\\)\|/g, '\\|')} |`);
      rows.push(...this.#members(child, full));
    };
    ts.forEachChild(node, visit);
    return rows;
  }

  #example({ name, symbol }: Declared, tags: readonly ts.JSDocTagInfo[]): string[] {
    const own = tags.filter((tag) => tag.name === 'example');
    if (own.length > 0)
      return own.map(({ text }) => {
        const code = ts.displayPartsToString(text).trim();
        return code.includes('```') ? code : `\`\`\`ts\n${code}\n\`\`\``;
      });
    if ((symbol.flags & ts.SymbolFlags.Value) === 0) return [];
    const used = new RegExp(`\\b${name}[(.<]`);
    const found = this.#examples.find(({ code }) => used.test(code));
    if (found === undefined) return [];
    const [, title = ''] = /^#+ (.*)$/.exec(`# ${posix.basename(found.from)}`) ?? [];
    const link = `[${title.replaceAll('-', ' ')}](${placeOf(found.from)})`;
    return [`Example, from ${link}:`, `\`\`\`ts\n${found.code}\`\`\``];
  }

  /** Links to the types that a signature names. */
  #namedIn(text: string, own: string): string[] {
    const code = text.replace(/'[^']*'/g, '');
    const names = new Set(code.match(/\b[A-Z]\w+\b/g) ?? []);
    return [...names]
      .filter((name) => name !== own && this.#links.has(name))
      .map((name) => this.#link(name));
  }

  #link(name: string): string {
    const to = this.#here.get(name) ?? this.#links.get(name);
    return to === undefined ? `\`${name}\`` : `[\`${name}\`](${to})`;
  }

  /** A comment's paragraphs. Its code and tables stay as they are. */
  #prose(comment: string): string {
    return this.#linked(comment);
  }

  /** A comment on one line, for a list or a table. */
  #inline(comment: string): string {
    return this.#linked(comment.replace(/\s*\n\s*/g, ' ').trim());
  }

  #linked(comment: string): string {
    return comment
      .split(/(`[^`]*`)/)
      .map((part, index) =>
        index % 2 === 1
          ? part
          : part
              .replace(
                /\{@link[\s*]+([\w.]+)(?:[\s|]+([^}]*))?\}/g,
                (_, name: string, words = '') => {
                  const link = this.#link(name.split('.')[0] ?? name);
                  return words === '' ? link.replace(/^\[`[^`]*`/, `[\`${name}\``) : words;
                },
              )
              .replace(/<(?=\w)/g, '&lt;'),
      )
      .join('');
  }
}

function memberName(node: ts.Node): string | undefined {
  const isMember =
    ts.isPropertySignature(node) ||
    ts.isMethodSignature(node) ||
    ts.isPropertyDeclaration(node) ||
    ts.isMethodDeclaration(node) ||
    ts.isGetAccessorDeclaration(node);
  if (!isMember || ts.isPrivateIdentifier(node.name)) return undefined;
  return node.name.getText();
}

function textOfComment({ comment, tags }: ts.JSDoc): string {
  const said = ts.getTextOfJSDocComment(comment) ?? '';
  const others = (tags ?? []).flatMap((tag) => {
    const text = ts.getTextOfJSDocComment(tag.comment) ?? '';
    const subject = ts.isJSDocParameterTag(tag) ? `\`${tag.name.getText()}\`` : tag.tagName.text;
    return text === '' ? [] : `${subject}: ${text}`;
  });
  return [said, ...others].join(' ');
}
