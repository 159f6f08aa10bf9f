/**
 * The file that says what is gated. Hides in which language it is written, and how a module of
 * TypeScript is loaded where neither a compiler nor the package is installed.
 */
import { existsSync, readFileSync } from 'node:fs';
import { extname, resolve } from 'node:path';
import * as interlock from 'mcp-interlock';
import { isGate } from '../../../src/basics/options.ts';
import { Failure, UsageError } from './command-line.ts';
import { parseWorkflows } from './json-gate.ts';

/** A gate with names of any type: the file's own types end here. */
export type AnyGate = interlock.StateMachineGate;

/** What a file of a gate holds. */
export interface WorkflowFile {
  /** In the order in which they are mounted. */
  readonly gates: readonly AnyGate[];
  /** For `stateSync()`. */
  readonly sync: interlock.StateSyncConfig | undefined;
}

const MODULES = ['.ts', '.mts', '.cts', '.js', '.mjs', '.cjs'];

/**
 * Reads a module: its default export is a gate, or an array of gates, and its `sync` holds the
 * policies of `stateSync()`. Or reads the same in JSON.
 *
 * @throws UsageError where there is no such file; Failure naming what is wrong in it
 */
export async function loadWorkflows(path: string): Promise<WorkflowFile> {
  const file = resolve(path);
  const ending = extname(file);
  if (ending !== '.json' && !MODULES.includes(ending))
    throw new UsageError(`${path}: expected a file that ends in .json, ${MODULES.join(', ')}`);
  if (!existsSync(file)) throw new UsageError(`${path}: there is no such file`);
  try {
    if (ending === '.json') return parseWorkflows(readFileSync(file, 'utf8'));
    return workflowsOf(await importModule(file));
  } catch (error) {
    throw new Failure(`${path}: ${describe(error, file)}`, { cause: error });
  }
}

type Module = Readonly<Record<string, unknown>>;

/**
 * The module gets the command's own `mcp-interlock`, also where another one is installed. Node
 * itself would load plain JavaScript with the installed one, so that is compiled too.
 */
async function importModule(file: string): Promise<Module> {
  // A gate in JSON does without the compiler.
  const { createJiti } = await import('jiti');
  const jiti = createJiti(file, {
    interopDefault: false,
    fsCache: false,
    virtualModules: { 'mcp-interlock': interlock },
  });
  const source = readFileSync(file, 'utf8');
  const isCommonJs = extname(file) === '.cjs';
  const given = { filename: file, async: !isCommonJs, forceTranspile: true };
  return (await jiti.evalModule(source, given)) as Module;
}

function workflowsOf(module: Module): WorkflowFile {
  // A module of CommonJS may be the gate itself.
  const isExport = module instanceof interlock.StateMachineGate || Array.isArray(module);
  const exported = isExport ? module : module.default;
  const gates: readonly unknown[] = Array.isArray(exported) ? exported : [exported];
  if (gates.length === 0) throw new Failure('the default export is an empty array, and no gate');
  return { gates: gates.map(parseGate), sync: parseSync(module.sync) };
}

function parseGate(value: unknown): AnyGate {
  if (value instanceof interlock.StateMachineGate) return value;
  const copy = isGate(value) ? ' of another copy of it: import it in the file itself' : '';
  const got = value === undefined ? 'there is none' : `it is ${nounOf(value)}${copy}`;
  throw new Failure(
    'expected a default export that is a StateMachineGate of "mcp-interlock", ' +
      `or an array of them; ${got}`,
  );
}

/** `stateSync()` checks the policies themselves. */
function parseSync(sync: unknown): interlock.StateSyncConfig | undefined {
  if (sync === undefined) return undefined;
  const config = Array.isArray(sync) ? { policies: sync } : sync;
  if (typeof config === 'object' && config !== null && 'policies' in config)
    return config as interlock.StateSyncConfig;
  throw new Failure(
    `expected the export "sync" to be an array of policies, or { policies }; it is ${nounOf(sync)}`,
  );
}

function nounOf(value: unknown): string {
  if (typeof value !== 'object' || value === null) return `${typeof value}: ${String(value)}`;
  const made: unknown = Object.getPrototypeOf(value)?.constructor;
  return typeof made === 'function' ? `an instance of ${made.name}` : 'an object';
}

/** The message, and the line of the user's file that it came from. */
function describe(error: unknown, file: string): string {
  if (!(error instanceof Error)) return String(error);
  if (error instanceof RangeError && error.message.startsWith('Maximum call stack'))
    return 'something in it is nested too deeply, such as `any` or `not` in a condition';
  const frame = error.stack?.split('\n').find((line) => line.includes(file));
  const [, place] = /:(\d+:\d+)\)?$/.exec(frame ?? '') ?? [];
  return place === undefined || error instanceof Failure
    ? error.message
    : `${error.message} (at ${place})`;
}
