/** Only the compiler checks this file, as it does `workflow.types.ts`. */
import Database from 'libsql';
import { type SqliteDatabase, sqliteStore } from '../../src/stores/sqlite.ts';

sqliteStore({ database: new Database(':memory:') });

// How TypeScript before 7 reads the overloads of `libsql` and `better-sqlite3`.
declare const narrowed: {
  exec(sql: string): void;
  prepare(sql: string): {
    all(value: NonNullable<unknown>): unknown[];
    run(value: NonNullable<unknown>): object;
  };
};
narrowed satisfies SqliteDatabase;

// @ts-expect-error
sqliteStore({ database: 'runs.db' });
