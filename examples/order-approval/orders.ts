import { randomUUID } from 'node:crypto';
import type { Pool, PoolClient } from 'pg';

export interface Order {
  readonly id: string;
  /** The run of the workflow. The app gives it to no client. */
  readonly run: string;
  readonly total: number;
}

/** The app's own table, beside those of the store. */
export class Orders {
  readonly #pool: Pool;
  readonly #table: string;

  constructor(pool: Pool, schema: string) {
    this.#pool = pool;
    this.#table = `${schema}.orders`;
  }

  async migrate(): Promise<void> {
    await this.#pool.query(`CREATE TABLE IF NOT EXISTS ${this.#table}
      (id text PRIMARY KEY, run text UNIQUE NOT NULL, total int NOT NULL, charge text UNIQUE)`);
  }

  async create(run: string, total: number): Promise<Order> {
    const id = randomUUID().slice(0, 8);
    await this.#pool.query(`INSERT INTO ${this.#table} (id, run, total) VALUES ($1, $2, $3)`, [
      id,
      run,
      total,
    ]);
    return { id, run, total };
  }

  async find(id: string): Promise<Order | undefined> {
    const { rows } = await this.#pool.query(
      `SELECT id, run, total FROM ${this.#table} WHERE id = $1`,
      [id],
    );
    return rows[0];
  }

  async ofRun(run: string): Promise<Order | undefined> {
    const { rows } = await this.#pool.query(
      `SELECT id, run, total FROM ${this.#table} WHERE run = $1`,
      [run],
    );
    return rows[0];
  }

  /** Notes the charge and does `andThen` in one transaction: both are saved, or neither. */
  async charge(
    run: string,
    charge: string,
    andThen: (client: PoolClient) => Promise<void>,
  ): Promise<void> {
    const client = await this.#pool.connect();
    try {
      await client.query('BEGIN');
      await client.query(`UPDATE ${this.#table} SET charge = $1 WHERE run = $2`, [charge, run]);
      await andThen(client);
      await client.query('COMMIT');
    } catch (error) {
      await client.query('ROLLBACK');
      throw error;
    } finally {
      client.release();
    }
  }
}
