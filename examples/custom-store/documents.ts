import { createHash, randomUUID } from 'node:crypto';
import { link, mkdir, open, readdir, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/**
 * A text under a key, and how often it was replaced. A key without a text is at revision 0.
 */
export interface Revision {
  readonly number: number;
  readonly text?: string;
}

/**
 * All that a backend must be able to do. Most can: an `UPDATE` of the revision before in SQL, a
 * conditional write in DynamoDB, `If-None-Match` in S3, a transaction in etcd.
 */
export interface Documents {
  newest(key: string): Promise<Revision>;
  /**
   * Keeps the text as this revision, durably, unless that revision exists: then `false`. Of many
   * who try the same number, exactly one is told `true`.
   */
  put(key: string, number: number, text: string): Promise<boolean>;
}

/**
 * Documents in a folder on a disk of this machine: a folder for each key, and in it a file for each
 * revision.
 */
export function fileDocuments(root: string): Documents {
  return {
    async newest(key) {
      const folder = folderOf(root, key);
      for (;;) {
        const number = await newestNumber(folder);
        if (number === 0) return { number };
        const text = await readFile(join(folder, String(number)), 'utf8');
        // Emptied since the folder was read: there is a newer one.
        if (text !== '') return { number, text };
      }
    },

    async put(key, number, text) {
      const folder = folderOf(root, key);
      await mkdir(folder, { recursive: true });
      const draft = join(folder, `draft-${randomUUID()}`);
      await writeFile(draft, text, { flush: true });
      try {
        // Whole or not at all, and only where the name is free.
        await link(draft, join(folder, String(number)));
        await flush(folder);
      } catch (error) {
        if (isCode(error, 'EEXIST')) return false;
        throw error;
      } finally {
        await rm(draft, { force: true });
      }
      // The name stays taken: no process that read an older revision can put this one again.
      if (number > 1) await truncate(join(folder, String(number - 1)));
      return true;
    },
  };
}

/**
 * Any string is a key, so it does not become a path. JSON keeps halves of surrogate pairs apart,
 * which UTF-8 does not.
 */
function folderOf(root: string, key: string): string {
  return join(root, createHash('sha256').update(JSON.stringify(key)).digest('hex'));
}

async function newestNumber(folder: string): Promise<number> {
  try {
    const names = await readdir(folder);
    return names.reduce((newest, name) => Math.max(newest, Number(name) || 0), 0);
  } catch (error) {
    if (isCode(error, 'ENOENT')) return 0;
    throw error;
  }
}

async function flush(folder: string): Promise<void> {
  const handle = await open(folder);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

function isCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code;
}
