/**
 * The functions of `src/`, as the compiler sees them: what they are called, and which of them are
 * leaf helpers.
 */
import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from '@typescript/typescript6';
import { LEAF_HELPERS } from './way.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
/** A longer function does something that is worth the jump to it. */
const MOST_LINES = 12;

/** One function of ours that has a body. */
export interface OurFunction {
  /**
   * `src/wire/call.ts Call.isForwardable`. A function without a name of its own is called `=>`.
   */
  readonly name: string;
  readonly node: ts.SignatureDeclaration;
  readonly body: ts.ConciseBody;
}

/** The functions of a file; `path` begins at the root of the repository. */
export function functionsOf(path: string, file: ts.SourceFile): readonly OurFunction[] {
  const found: OurFunction[] = [];
  const visit = (node: ts.Node, owner: string): void => {
    if (ts.isFunctionLike(node) && 'body' in node && node.body !== undefined) {
      const name = `${path} ${owner}${nameOf(node)}`;
      found.push({ name, node, body: node.body as ts.ConciseBody });
    }
    const inside = ts.isClassLike(node) && node.name ? `${node.name.text}.` : owner;
    ts.forEachChild(node, (child) => visit(child, inside));
  };
  visit(file, '');
  return found;
}

function nameOf(node: ts.SignatureDeclaration): string {
  if (node.name !== undefined) return node.name.getText();
  if (ts.isConstructorDeclaration(node)) return 'constructor';
  const { parent } = node;
  const isNamed =
    ts.isVariableDeclaration(parent) ||
    ts.isPropertyDeclaration(parent) ||
    ts.isPropertyAssignment(parent);
  return isNamed ? parent.name.getText() : '=>';
}

/**
 * The names of all leaf helpers, in order. A leaf helper has a name, at most 12 lines, and calls no
 * other function of ours: no method, getter, callback or function type that `src/` declares. It
 * makes no function either. So a reader who knows its name need not go there. Constructors are none.
 *
 * Takes some seconds, since it asks the compiler for each call's declaration.
 */
export function leafHelpers(): readonly string[] {
  const folder = join(ROOT, 'src');
  const paths = readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.ts'))
    .map((path) => join(folder, path));
  const options = ts.readConfigFile(join(ROOT, 'tsconfig.json'), ts.sys.readFile).config;
  const { options: parsed } = ts.parseJsonConfigFileContent(
    { ...options, include: [], files: paths },
    ts.sys,
    ROOT,
  );
  const program = ts.createProgram(paths, parsed);
  const checker = program.getTypeChecker();
  const areLeaves = new Map<string, boolean>();
  for (const path of paths) {
    const file = program.getSourceFile(path);
    const from = path.slice(ROOT.length).replaceAll('\\', '/');
    for (const each of file ? functionsOf(from, file) : []) {
      // Two functions of one name count as leaves only if both are.
      const isLeaf = areLeaves.get(each.name) !== false && isLeafHelper(each, checker);
      areLeaves.set(each.name, isLeaf);
    }
  }
  return [...areLeaves].flatMap(([name, isLeaf]) => (isLeaf ? [name] : [])).sort();
}

function isLeafHelper({ name, node, body }: OurFunction, checker: ts.TypeChecker): boolean {
  if (/(=>|constructor)$/.test(name)) return false;
  if (node.getText().split('\n').length > MOST_LINES) return false;
  const isCallOfOurs = (part: ts.Node): boolean => {
    if (ts.isFunctionLike(part)) return true;
    if (ts.isCallExpression(part) || ts.isNewExpression(part)) {
      const { declaration } = checker.getResolvedSignature(part) ?? {};
      // A class without a constructor of its own has no declaration there.
      if (isOurs(declaration ?? declarationOf(part.expression, checker))) return true;
    }
    if (ts.isPropertyAccessExpression(part)) {
      const declared = declarationOf(part.name, checker);
      if (declared && ts.isAccessor(declared) && isOurs(declared)) return true;
    }
    return ts.forEachChild(part, isCallOfOurs) ?? false;
  };
  return !isCallOfOurs(body);
}

function declarationOf(name: ts.Node, checker: ts.TypeChecker): ts.Declaration | undefined {
  const symbol = checker.getSymbolAtLocation(name);
  const isAlias = symbol && (symbol.flags & ts.SymbolFlags.Alias) !== 0;
  return (isAlias ? checker.getAliasedSymbol(symbol) : symbol)?.declarations?.[0];
}

function isOurs(declaration: ts.Node | undefined): boolean {
  return declaration?.getSourceFile().fileName.startsWith(join(ROOT, 'src/')) ?? false;
}

/** Writes the list that is checked in. */
export function renewLeafHelpers(): void {
  writeFileSync(LEAF_HELPERS, `${leafHelpers().join('\n')}\n`);
}
