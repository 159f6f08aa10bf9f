/**
 * The public surface of each entry, as text in `api/`: every export with its type, and the types
 * that exports name but no entry exports. Comments are left out, since a better sentence breaks no
 * app. `npm run api` writes it from what was built; `test/api.test.ts` compares it.
 */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { argv } from 'node:process';
import { fileURLToPath } from 'node:url';
import ts from '@typescript/typescript6';
import { manifestOf, PACKAGES } from './entries.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));

export interface PublicEntry {
  /** What users import: `mcp-interlock/stores/redis`. */
  readonly specifier: string;
  /** Its declarations. */
  readonly file: string;
}

/** A type or a value that a package declares. */
export interface Declared {
  readonly name: string;
  readonly symbol: ts.Symbol;
  /** Its declarations without comments. */
  readonly texts: readonly string[];
}

/** What one entry exports. */
export interface EntrySurface {
  /** The exports that no earlier entry of the package has. */
  readonly own: readonly Declared[];
  /** The others, and which entry has each. */
  readonly shared: readonly { readonly name: string; readonly owner: string }[];
  /** What `own` names, and no entry exports. */
  readonly hidden: readonly Declared[];
}

/** The reports, by their paths from the root of the repository. Each package must be built. */
export function apiReports(): ReadonlyMap<string, string> {
  const reports = new Map<string, string>();
  for (const { entry, surface } of publicSurface().entries)
    reports.set(`api/${entry.specifier}.d.ts`, reportOf(entry, surface));
  return reports;
}

/** What the entries of each package export, and the compiler that knows their comments. */
export interface PublicSurface {
  readonly checker: ts.TypeChecker;
  readonly entries: readonly { readonly entry: PublicEntry; readonly surface: EntrySurface }[];
}

let read: PublicSurface | undefined;

/** Reads the declarations once: the compiler takes seconds for them. */
export function publicSurface(): PublicSurface {
  read ??= readSurface();
  return read;
}

function readSurface(): PublicSurface {
  const packages = PACKAGES.map((folder) => {
    const { name, exports } = manifestOf(folder);
    const entries = Object.entries(exports).flatMap(([path, to]): PublicEntry[] => {
      if (typeof to === 'string' || to.types === undefined) return [];
      return [{ specifier: name + path.slice(1), file: join(ROOT, folder, to.types) }];
    });
    return { dist: join(ROOT, folder, 'dist'), entries };
  });
  const files = packages.flatMap(({ entries }) => entries.map(({ file }) => file));
  const program = ts.createProgram(files, {
    module: ts.ModuleKind.NodeNext,
    target: ts.ScriptTarget.ES2023,
    types: ['node'],
    strict: true,
  });
  const entries = packages.flatMap(({ dist, entries }) => {
    const surface = new Surface(program, dist, entries);
    return entries.map((entry) => ({ entry, surface: surface.of(entry) }));
  });
  return { checker: program.getTypeChecker(), entries };
}

function reportOf({ specifier }: PublicEntry, { own, shared, hidden }: EntrySurface): string {
  const parts = [`// What ${specifier} exports. \`npm run api\` renews this file.`];
  parts.push(...shared.map(({ name, owner }) => `export { ${name} } from '${owner}';`));
  parts.push(...own.flatMap(({ texts }) => texts.map((text) => `\n${text}`)));
  if (hidden.length > 0) parts.push('\n// Named by the above, and exported by no entry:');
  parts.push(...hidden.map(({ texts }) => `\n${texts.join('\n')}`));
  return `${parts.join('\n')}\n`;
}

/** What the entries of one package export, by the symbols that the compiler has for it. */
class Surface {
  readonly #program: ts.Program;
  readonly #checker: ts.TypeChecker;
  readonly #dist: string;
  readonly #printer = ts.createPrinter({ removeComments: true });
  /** The first entry that exports a symbol. The later ones only name it. */
  readonly #owners = new Map<ts.Symbol, string>();
  /** Those that no entry exports, and that a report has printed. */
  readonly #printed = new Set<ts.Symbol>();

  constructor(program: ts.Program, dist: string, entries: readonly PublicEntry[]) {
    this.#program = program;
    this.#checker = program.getTypeChecker();
    this.#dist = dist.replaceAll('\\', '/');
    for (const entry of entries)
      for (const [, symbol] of this.#exportsOf(entry))
        if (!this.#owners.has(symbol)) this.#owners.set(symbol, entry.specifier);
  }

  of(entry: PublicEntry): EntrySurface {
    const shared: { name: string; owner: string }[] = [];
    const own: Declared[] = [];
    const hidden = new Map<ts.Symbol, Declared>();
    for (const [name, symbol] of this.#exportsOf(entry)) {
      const owner = this.#owners.get(symbol) ?? entry.specifier;
      if (owner !== entry.specifier) shared.push({ name, owner });
      else own.push({ name, symbol, texts: this.#print(name, symbol, hidden) });
    }
    const byText = (one: Declared, other: Declared): number =>
      one.texts.join('\n') < other.texts.join('\n') ? -1 : 1;
    return { own, shared, hidden: [...hidden.values()].sort(byText) };
  }

  /** The exports of an entry in the order of their names, each with what it means. */
  #exportsOf({ file, specifier }: PublicEntry): [name: string, symbol: ts.Symbol][] {
    const source = this.#program.getSourceFile(file);
    const module = source && this.#checker.getSymbolAtLocation(source);
    if (module === undefined) throw new Error(`${specifier} has no declarations: build it first`);
    const exported = this.#checker.getExportsOfModule(module);
    return exported
      .map((symbol): [string, ts.Symbol] => [symbol.name, this.#resolved(symbol)])
      .sort(([a], [b]) => (a < b ? -1 : 1));
  }

  #resolved(symbol: ts.Symbol): ts.Symbol {
    const isAlias = (symbol.flags & ts.SymbolFlags.Alias) !== 0;
    return isAlias ? this.#checker.getAliasedSymbol(symbol) : symbol;
  }

  /** The declarations of a symbol. What they name, and no entry exports, goes into `hidden`. */
  #print(name: string, symbol: ts.Symbol, hidden: Map<ts.Symbol, Declared>): string[] {
    const texts = (symbol.declarations ?? []).map((declaration) => {
      const statement = ts.isVariableDeclaration(declaration)
        ? declaration.parent.parent
        : declaration;
      this.#findHidden(statement, hidden);
      const text = this.#printer.printNode(
        ts.EmitHint.Unspecified,
        statement,
        statement.getSourceFile(),
      );
      return text.replace(/^(export )?(declare )?/, 'export ');
    });
    if (symbol.name !== name) texts.push(`export { ${symbol.name} as ${name} };`);
    return texts;
  }

  #findHidden(node: ts.Node, hidden: Map<ts.Symbol, Declared>): void {
    if (ts.isIdentifier(node)) {
      const named = this.#checker.getSymbolAtLocation(node);
      const symbol = named && this.#resolved(named);
      if (symbol && this.#isOfThisPackage(symbol) && !this.#owners.has(symbol)) {
        if (this.#printed.has(symbol)) return;
        this.#printed.add(symbol);
        const texts = this.#print(symbol.name, symbol, hidden);
        hidden.set(symbol, {
          name: symbol.name,
          symbol,
          texts: texts.map((text) => text.replace(/^export /, '')),
        });
      }
    }
    ts.forEachChild(node, (child) => this.#findHidden(child, hidden));
  }

  /** Whether it stands at the top of one of the package's own files. */
  #isOfThisPackage({ declarations = [] }: ts.Symbol): boolean {
    return declarations.some((declaration) => {
      const { parent } = ts.isVariableDeclaration(declaration)
        ? declaration.parent.parent
        : declaration;
      // A file that another names as a whole has no parent.
      return (
        parent !== undefined &&
        ts.isSourceFile(parent) &&
        parent.fileName.startsWith(`${this.#dist}/`)
      );
    });
  }
}

if (argv[1] === fileURLToPath(import.meta.url)) {
  rmSync(join(ROOT, 'api'), { recursive: true, force: true });
  for (const [path, text] of apiReports()) {
    mkdirSync(dirname(join(ROOT, path)), { recursive: true });
    writeFileSync(join(ROOT, path), text);
  }
}
