/**
 * Names and tokens that leave the server and come back. Hides which run's key an id means. A client
 * also carries positions and places in lists, and can neither read nor change them.
 */
import {
  createCipheriv,
  createDecipheriv,
  createHmac,
  hkdfSync,
  randomBytes,
  timingSafeEqual,
} from 'node:crypto';

/** What a sealed text is for: one that was made for something else does not open. */
export type Purpose = 'run' | 'page' | 'search' | 'position';

const CIPHER = 'aes-256-gcm';
const IV_BYTES = 12;
const TAG_BYTES = 16;

/** Seals texts under one secret. Processes with the same secret open each other's. */
export class Seal {
  readonly #cipherKey: Buffer;
  readonly #ivKey: Buffer;
  readonly #macKey: Buffer;

  /** @param secret any; without one it is random, so that ids are good in this process alone */
  constructor(secret: string | Uint8Array = randomBytes(32)) {
    const derive = (info: string): Buffer =>
      Buffer.from(hkdfSync('sha256', secret, '', `mcp-interlock-inspector ${info}`, 32));
    [this.#cipherKey, this.#ivKey, this.#macKey] = [derive('seal'), derive('iv'), derive('mac')];
  }

  /**
   * The same each time for the same text, so that a page knows a run again. The nonce comes from
   * the text, so no other text has it.
   */
  close(purpose: Purpose, text: string): string {
    // A key may be any string; half of a surrogate pair has no UTF-8 but in JSON.
    const plain = Buffer.from(JSON.stringify(text));
    const iv = createHmac('sha256', this.#ivKey)
      .update(`${purpose}\n`)
      .update(plain)
      .digest()
      .subarray(0, IV_BYTES);
    const cipher = createCipheriv(CIPHER, this.#cipherKey, iv).setAAD(Buffer.from(purpose));
    const sealed = Buffer.concat([iv, cipher.update(plain), cipher.final(), cipher.getAuthTag()]);
    return sealed.toString('base64url');
  }

  /** The text; `undefined` where this secret did not seal it for that. */
  open(purpose: Purpose, sealed: string): string | undefined {
    const bytes = Buffer.from(sealed, 'base64url');
    // One run has one id: no other spelling of it is taken.
    if (bytes.length < IV_BYTES + TAG_BYTES || bytes.toString('base64url') !== sealed)
      return undefined;
    const iv = bytes.subarray(0, IV_BYTES);
    const decipher = createDecipheriv(CIPHER, this.#cipherKey, iv, { authTagLength: TAG_BYTES });
    decipher.setAAD(Buffer.from(purpose)).setAuthTag(bytes.subarray(-TAG_BYTES));
    try {
      const body = bytes.subarray(IV_BYTES, -TAG_BYTES);
      const text: unknown = JSON.parse(
        Buffer.concat([decipher.update(body), decipher.final()]).toString(),
      );
      return typeof text === 'string' ? text : undefined;
    } catch {
      return undefined;
    }
  }

  /** A proof that this secret was here. */
  sign(text: string): string {
    return createHmac('sha256', this.#macKey).update(text).digest('base64url');
  }

  isSigned(text: string, signature: string): boolean {
    const [right, given] = [Buffer.from(this.sign(text)), Buffer.from(signature)];
    return right.length === given.length && timingSafeEqual(right, given);
  }
}
