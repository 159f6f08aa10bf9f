import type { IncomingMessage } from 'node:http';

/**
 * Sets or (with `undefined`) removes a request header. Node keeps headers twice, and adapters to the Fetch API read
 * `rawHeaders`: changing only `headers` would leak the old value to them.
 */
export function setRequestHeader(req: IncomingMessage, name: string, value: string | undefined): void {
  const raw = req.rawHeaders;
  for (let i = raw.length - 2; i >= 0; i -= 2) {
    if (raw[i]?.toLowerCase() === name) raw.splice(i, 2);
  }
  if (value === undefined) {
    delete req.headers[name];
  } else {
    req.headers[name] = value;
    raw.push(name, value);
  }
}

/** A request header that must have one value; of several the joined form, which matches nothing. */
export function requestHeader(req: IncomingMessage, name: string): string | undefined {
  const value = req.headers[name];
  return Array.isArray(value) ? value.join(', ') : value;
}
