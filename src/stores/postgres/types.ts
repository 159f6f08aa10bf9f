/** What the store uses of a client of `pg`. */
export interface PostgresClient {
  query(text: string, values?: unknown[]): Promise<{ rows: unknown[] }>;
}

/** What the store uses of a `Pool` of `pg`. */
export interface PostgresPool extends PostgresClient {
  connect(): Promise<PostgresPoolClient>;
}

/** A client that goes back to its pool; given an error, it is closed instead. */
export interface PostgresPoolClient extends PostgresClient {
  release(error?: Error | boolean): void;
}
