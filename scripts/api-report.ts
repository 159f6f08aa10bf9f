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
import manifest from '../package.json' with { type: 'json' };
import cli from '../packages/cli/package.json' with { type: 'json' };
import inspector from '../packages/inspector/package.json' with { type: 'json' };

const ROOT = fileURLToPath(new URL('..', import.meta.url));

interface Manifest {
  readonly name: string;
  readonly exports: Readonly<Record<string, string | { readonly types: string }>>;
}

/** Each package, by its folder. */
const PACKAGES: Readonly<Record<string, Manifest>> = {
  '': manifest,
  'packages/cli': cli,
  'packages/inspector': inspector,
};

interface PublicEntry {
  /** What users import: `mcp-interlock/stores/redis`. */
  readonly specifier: string;
  /** Its declarations. */
  readonly file: string;
}

/** The reports, by their paths from the root of the repository. Each package must be built. */
export function apiReports(): ReadonlyMap<string, string> {
  const packages = Object.entries(PACKAGES).map(([folder, { name, exports }]) => ({
    dist: join(ROOT, folder, 'dist'),
    entries: Object.entries(exports).flatMap(([path, to]): PublicEntry[] => {
      if (typeof to === 'string') return [];
      return [{ specifier: name + path.slice(1), file: join(ROOT, folder, to.types) }];
    }),
  }));
  const files = packages.flatMap(({ entries }) => entries.map(({ file }) => file));
  const program = ts.createProgram(files, {
    module: ts.ModuleKind.NodeNext,
    target: ts.ScriptTarget.ES2023,
    types: ['node'],
    strict: true,
  });
  const reports = new Map<string, string>();
  for (const { dist, entries } of packages) {
    const surface = new Surface(program, dist, entries);
    for (const entry of entries) reports.set(`api/${entry.specifier}.d.ts`, surface.report(entry));
  }
  return reports;
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

  report(entry: PublicEntry): string {
    const shared: string[] = [];
    const own: string[] = [];
    const hidden = new Map<ts.Symbol, string>();
    for (const [name, symbol] of this.#exportsOf(entry)) {
      const owner = this.#owners.get(symbol);
      if (owner === entry.specifier) own.push(...this.#print(name, symbol, hidden));
      else shared.push(`export { ${name} } from '${owner}';`);
    }
    const parts = [`// What ${entry.specifier} exports. \`npm run api\` renews this file.`];
    parts.push(...shared, ...own.map((text) => `\n${text}`));
    const unexported = [...hidden].sort(([, a], [, b]) => (a < b ? -1 : 1));
    if (unexported.length > 0) parts.push('\n// Named by the above, and exported by no entry:');
    parts.push(...unexported.map(([, text]) => `\n${text}`));
    return `${parts.join('\n')}\n`;
  }

  /** The exports of an entry in the order of their names, each with what it stands for. */
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
  #print(name: string, symbol: ts.Symbol, hidden: Map<ts.Symbol, string>): string[] {
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

  #findHidden(node: ts.Node, hidden: Map<ts.Symbol, string>): void {
    if (ts.isIdentifier(node)) {
      const named = this.#checker.getSymbolAtLocation(node);
      const symbol = named && this.#resolved(named);
      if (symbol && this.#isOfThisPackage(symbol) && !this.#owners.has(symbol)) {
        if (this.#printed.has(symbol)) return;
        this.#printed.add(symbol);
        const texts = this.#print(symbol.name, symbol, hidden);
        hidden.set(symbol, texts.map((text) => text.replace(/^export /, '')).join('\n'));
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
      return ts.isSourceFile(parent) && parent.fileName.startsWith(`${this.#dist}/`);
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
