/**
 * The page's own files, out of the package: hides where they are, what they are called and how they
 * are compressed. They are read once, so no path of a request ever reaches the file system.
 */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { extname, join, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { sendText } from './http.ts';

const TYPES: Readonly<Record<string, string>> = {
  '.css': 'text/css; charset=utf-8',
  '.html': 'text/html; charset=utf-8',
  '.ico': 'image/x-icon',
  '.js': 'text/javascript; charset=utf-8',
  '.json': 'application/json; charset=utf-8',
  '.png': 'image/png',
  '.svg': 'image/svg+xml; charset=utf-8',
};

/** The build names files by a hash of what is in them; such a file never changes. */
const HASHED = /[-.][A-Za-z0-9_-]{8,}\.[a-z]+$/;

const NOT_BUILT =
  'The page of the inspector is not built: run "npm run build" in packages/inspector.';

/** Beside the built server; the source is run as it is only in the package's own repository. */
const BUILT = new URL(import.meta.url.endsWith('.ts') ? '../dist/app/' : './app/', import.meta.url);

interface Asset {
  readonly bytes: Buffer;
  readonly type: string;
  readonly etag: string;
  readonly isForever: boolean;
  zipped: Buffer | undefined;
}

export class Assets {
  /** By their path below the folder, with slashes. */
  readonly #files: ReadonlyMap<string, Asset>;

  constructor(folder: URL = BUILT) {
    this.#files = readFolder(fileURLToPath(folder));
  }

  /** `false` where there is no such file. `''` is the page. */
  send(req: IncomingMessage, res: ServerResponse, path: string): boolean {
    const asset = this.#files.get(path === '' ? 'index.html' : path);
    if (asset === undefined) {
      if (path !== '' || this.#files.size > 0) return false;
      sendText(req, res, 503, 'text/plain', NOT_BUILT);
      return true;
    }
    res.setHeader('content-type', asset.type);
    res.setHeader('etag', asset.etag);
    res.setHeader('vary', 'accept-encoding');
    res.setHeader(
      'cache-control',
      asset.isForever ? 'private, max-age=31536000, immutable' : 'no-cache',
    );
    if (req.headers['if-none-match'] === asset.etag) {
      res.writeHead(304).end();
      return true;
    }
    const isZipped = /\bgzip\b/.test(String(req.headers['accept-encoding'] ?? ''));
    if (isZipped) asset.zipped ??= gzipSync(asset.bytes);
    const bytes = isZipped && asset.zipped ? asset.zipped : asset.bytes;
    if (isZipped) res.setHeader('content-encoding', 'gzip');
    res.setHeader('content-length', bytes.length);
    res.writeHead(200).end(req.method === 'HEAD' ? undefined : bytes);
    return true;
  }
}

function readFolder(folder: string): Map<string, Asset> {
  const files = new Map<string, Asset>();
  let found: string[];
  try {
    found = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter(
      (name) => extname(name) in TYPES,
    );
  } catch {
    return files;
  }
  for (const file of found) {
    const bytes = readFileSync(join(folder, file));
    files.set(file.split(sep).join('/'), {
      bytes,
      type: TYPES[extname(file)] ?? 'application/octet-stream',
      etag: `"${createHash('sha256').update(bytes).digest('base64url').slice(0, 22)}"`,
      isForever: HASHED.test(file),
      zipped: undefined,
    });
  }
  return files;
}
