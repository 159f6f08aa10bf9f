import Database from 'libsql';

const PRICE = 5;

/** The app's own data, which the gate knows nothing of. */
export class Shop {
  readonly #database: Database.Database;

  constructor(file: string) {
    this.#database = new Database(file);
    this.#database.exec(`
      CREATE TABLE IF NOT EXISTS items (cart TEXT NOT NULL, sku TEXT NOT NULL);
      CREATE TABLE IF NOT EXISTS payments (
        key TEXT PRIMARY KEY, cart TEXT NOT NULL, amount INTEGER NOT NULL
      );
    `);
  }

  add(cart: string, sku: string): void {
    this.#database.prepare('INSERT INTO items VALUES (?, ?)').run(cart, sku);
  }

  items(cart: string): string[] {
    const rows = this.#database
      .prepare('SELECT sku FROM items WHERE cart = ? ORDER BY rowid')
      .all(cart);
    return (rows as { sku: string }[]).map(({ sku }) => sku);
  }

  total(cart: string): number {
    return this.items(cart).length * PRICE;
  }

  /** Paying again with the same key does nothing, as with a payment provider. */
  async pay(cart: string, key: string): Promise<void> {
    this.#database
      .prepare('INSERT OR IGNORE INTO payments VALUES (?, ?, ?)')
      .run(key, cart, this.total(cart));
  }

  payments(cart: string): number {
    return this.#database.prepare('SELECT 1 FROM payments WHERE cart = ?').all(cart).length;
  }
}
