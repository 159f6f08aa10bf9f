/** Where runs are kept, by a URL. Hides its driver, and what to do before and after. */
import { closeSync, existsSync, openSync } from 'node:fs';
import { InterlockError, localBus, memoryStore, type NotificationBus } from 'mcp-interlock';
import { postgresBus } from 'mcp-interlock/bus/postgres';
import { redisBus } from 'mcp-interlock/bus/redis';
import type { AtomicStateStore, StateStore } from 'mcp-interlock/stores';
import { postgresStore } from 'mcp-interlock/stores/postgres';
import { redisStore } from 'mcp-interlock/stores/redis';
import { sqliteStore } from 'mcp-interlock/stores/sqlite';
import { Failure, UsageError } from './command-line.ts';
import { optionalPackage } from './optional-package.ts';

/** A store that is open. */
export interface OpenStore {
  readonly store: StateStore & AtomicStateStore;
  /** Carries changed lists between processes that share the store. */
  readonly bus?: NotificationBus;
  /** What it is, without a password. */
  readonly name: string;
  close(): Promise<void>;
}

const FORMS = 'sqlite:runs.db, memory, redis://host or postgres://host/database';

/** Opens the store that a text names. `onFault` gets what goes wrong with it later. */
export type Opener = (onFault: (message: string) => void) => Promise<OpenStore>;

/** `existing`: it must be there, and no file or table is made. A wrong name is found out so. */
type Making = 'made' | 'existing';

/**
 * The store that a text names. Its opener rejects with a Failure where it cannot be opened.
 *
 * @throws UsageError for a text that names none
 */
export function storeNamed(text: string, making: Making = 'made'): Opener {
  const open = openerOf(text);
  return async (onFault) => {
    try {
      return await open(text, onFault, making);
    } catch (error) {
      if (error instanceof Failure) throw error;
      throw new Failure(`the store ${nameOf(text)} cannot be opened: ${wordsOf(error)}`);
    }
  };
}

/** What the help says of the store of gates that serve already. */
export const STORE_HELP =
  'The store of the gates: sqlite:FILE, redis://… or postgres://…. It must be there already';

/**
 * The store of gates that serve in other processes. It must be there: nothing is made.
 *
 * @throws UsageError for a text that names none
 */
export function storeOfGates(text: string): Opener {
  if (text === 'memory')
    throw new UsageError(
      '--store memory: another process cannot see what a gate keeps in memory. Use its inspector',
    );
  return storeNamed(text, 'existing');
}

/** The words of a store say to this person, who has its URL, what is wrong. */
export function storeFailure(error: unknown): Error {
  if (error instanceof InterlockError || !(error instanceof Error)) return error as Error;
  const { message, cause } = error;
  const why = cause instanceof Error && cause.message !== '' ? `: ${cause.message}` : '';
  return new Failure(`${message}${why}`, { cause: error });
}

/** A wrong store has no runs, and its operator must not take that for good news. */
export function doubtOf({ name }: OpenStore, workflow: string): string {
  return (
    `mcp-interlock: ${name} has no run of ${workflow} that is under way. ` +
    'Is it the store of your gates?'
  );
}

function openerOf(
  text: string,
): (text: string, onFault: Parameters<Opener>[0], making: Making) => Promise<OpenStore> {
  if (text === 'memory') return openMemory;
  if (text === 'sqlite::memory:') throw new UsageError('--store: say memory for runs in memory');
  if (/^sqlite:./.test(text)) return openSqlite;
  if (/^rediss?:\/\//.test(text)) return openRedis;
  if (/^postgres(?:ql)?:\/\//.test(text)) return openPostgres;
  throw new UsageError(`--store: expected ${FORMS}, got ${JSON.stringify(nameOf(text))}`);
}

async function openMemory(name: string): Promise<OpenStore> {
  return { store: memoryStore(), name, close: async () => {} };
}

async function openSqlite(name: string, _: unknown, making: Making): Promise<OpenStore> {
  const file = name.slice('sqlite:'.length);
  if (making === 'existing' && !existsSync(file))
    throw new Failure(`there is no file ${file}: give the --store of your gates`);
  // Runs are named by the ids of sessions, which are credentials: the file is its owner's alone.
  closeSync(openSync(file, 'a', 0o600));
  const { default: Database } = await import('libsql');
  if (making === 'existing') {
    const found = new Database(file, { readonly: true });
    const tables = found.prepare("SELECT 1 FROM sqlite_master WHERE name = 'workflow_format'");
    const isEmpty = tables.all().length === 0;
    found.close();
    if (isEmpty) throw new Failure(`${file} holds no runs: give the --store of your gates`);
  }
  const database = new Database(file);
  const store = sqliteStore({ database });
  // One process serves the gate on a file, and so it sees each call.
  return { store, bus: localBus(), name, close: async () => void database.close() };
}

async function openRedis(url: string, onFault: (message: string) => void): Promise<OpenStore> {
  const { createClient } = await optionalPackage(
    `--store ${nameOf(url)}`,
    'redis',
    () => import('redis'),
  );
  const client = createClient({ url });
  await new Promise<void>((resolve, reject) => {
    // It would try again for ever. The user who starts the command has to know.
    client.once('error', reject);
    client.connect().then(() => resolve(), reject);
  }).catch((error: unknown) => {
    client.destroy();
    throw error;
  });
  client.on('error', (error) => onFault(`redis: ${wordsOf(error)}`));
  return {
    store: redisStore({ client }),
    bus: redisBus({ client }),
    name: nameOf(url),
    close: async () => void client.destroy(),
  };
}

async function openPostgres(
  url: string,
  onFault: (message: string) => void,
  making: Making,
): Promise<OpenStore> {
  const { default: pg } = await optionalPackage(`--store ${nameOf(url)}`, 'pg', () => import('pg'));
  const pool = new pg.Pool({ connectionString: url });
  pool.on('error', (error) => onFault(`postgres: ${wordsOf(error)}`));
  const store = postgresStore({ pool });
  if (making === 'made') await store.migrate();
  return { store, bus: postgresBus({ pool }), name: nameOf(url), close: () => pool.end() };
}

function nameOf(text: string): string {
  if (!text.includes('://') || !URL.canParse(text)) return text;
  const url = new URL(text);
  url.password = '';
  return url.href;
}

/** Of an error with several in it, as of a host with two addresses, their codes. */
function wordsOf(error: unknown): string {
  if (error instanceof AggregateError) return error.errors.map(wordsOf).join('; ');
  return error instanceof Error ? error.message : String(error);
}
