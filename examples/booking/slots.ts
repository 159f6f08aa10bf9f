import Database from 'libsql';

/**
 * The calendar of a practice. It knows which slots are taken; the model only believes that it does.
 */
export class Slots {
  readonly #database: Database.Database;

  constructor(file: string) {
    this.#database = new Database(file);
    this.#database.exec(`
      CREATE TABLE IF NOT EXISTS slots (slot TEXT PRIMARY KEY, patient TEXT);
      INSERT OR IGNORE INTO slots (slot) VALUES ('monday-9'), ('monday-10'), ('tuesday-9');
    `);
  }

  async free(): Promise<string[]> {
    const rows = this.#database
      .prepare('SELECT slot FROM slots WHERE patient IS NULL ORDER BY slot')
      .all();
    return (rows as { slot: string }[]).map(({ slot }) => slot);
  }

  async isFree(slot: string): Promise<boolean> {
    return (await this.free()).includes(slot);
  }

  /**
   * Gives the slot to the patient, unless another one has it. One statement: of two at a time one
   * gets it.
   */
  async take(slot: string, patient: string): Promise<boolean> {
    const { changes } = this.#database
      .prepare('UPDATE slots SET patient = ? WHERE slot = ? AND patient IS NULL')
      .run(patient, slot);
    return changes === 1;
  }

  async takenBy(patient: string): Promise<string[]> {
    const rows = this.#database.prepare('SELECT slot FROM slots WHERE patient = ?').all(patient);
    return (rows as { slot: string }[]).map(({ slot }) => slot);
  }
}
