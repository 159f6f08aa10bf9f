import { randomBytes } from 'node:crypto';
import type { Call } from '../wire/call.ts';
import { decodedHeader } from '../wire/era.ts';
import { requestHeader, setRequestHeader } from '../wire/headers.ts';
import type { Message } from '../wire/message.ts';
import type { RequestPort } from '../wire/ports.ts';
import { readUri } from '../workflow/uri-readings.ts';

const NAME_HEADER = 'mcp-name';

/**
 * Made-up names under which the upstream is asked for what is hidden: it surely does not have them,
 * so that its answer has its own shape. A made-up name says which name it stands for, so that
 * that one can be put back on any stream of this process on which the answer comes.
 */
export class Aliases {
  /** Lower-case, since an upstream may write a URI's scheme and host that way. */
  readonly #mark = randomBytes(12).toString('hex');
  readonly #names: string[] = [];
  readonly #pattern = new RegExp(`t${this.#mark}(\\d+)z|(urn):${this.#mark}:([\\w-]*):`, 'gi');

  /** For a tool or a prompt that a gate binds, of which there are few. */
  ofName(name: string): string {
    const known = this.#names.indexOf(name);
    const index = known === -1 ? this.#names.push(name) - 1 : known;
    return `t${this.#mark}${index}z`;
  }

  /**
   * For any URI, or template of URIs: no template of the upstream's makes such a URN. A capital
   * scheme tells an upstream that repeats it as it came from one that repeats it in its normal
   * form.
   */
  ofUri(uri: string): string {
    return `URN:${this.#mark}:${Buffer.from(uri).toString('base64url')}:`;
  }

  /** Whether a made-up name may stand in these bytes. */
  areIn(bytes: Buffer): boolean {
    return bytes.includes(this.#mark);
  }

  /** Puts the names back that the client knows. */
  takeOut(message: Message): void {
    if (!message.text.includes(this.#mark)) return;
    message.rename(this.#pattern, (alias, index?: string, scheme?: string, uri = '') => {
      if (index !== undefined) return this.#names[Number(index)] ?? alias;
      const written = Buffer.from(uri, 'base64url').toString();
      return scheme === 'URN' ? written : normalForm(written);
    });
  }
}

/** Asks the upstream for what it does not have, in place of what `path` names. */
export function askForAlias(
  req: RequestPort,
  { message }: Call,
  path: readonly string[],
  alias: string,
): void {
  // Where the header contradicts the body, the upstream must find that it does.
  const header = requestHeader(req, NAME_HEADER);
  const isRepeated = header !== undefined && decodedHeader(header) === message.at(...path);
  message.set(path, alias);
  if (isRepeated) setRequestHeader(req, NAME_HEADER, alias);
}

/** What is odd has no normal form that all agree about. */
function normalForm(uri: string): string {
  return readUri(uri) === undefined ? uri : new URL(uri).href;
}
