import { createHash, randomBytes } from 'node:crypto';

/** Where a session's id travels, in both directions. */
export const SESSION_HEADER = 'mcp-session-id';

/** A session id: 192 random bits in visible ASCII (MCP 2025-11-25, Transports, "Session Management"). */
export function newSessionId(): string {
  return randomBytes(24).toString('base64url');
}

/** A claim's token, and the idempotency key of the step that it is for. */
export function newToken(): string {
  if (drawn.length < TOKEN_BYTES) drawn = randomBytes(100 * TOKEN_BYTES);
  const token = drawn.toString('base64url', 0, TOKEN_BYTES);
  drawn = drawn.subarray(TOKEN_BYTES);
  return token;
}

const TOKEN_BYTES = 18;

/** Random bytes for the next tokens: drawing few of them costs as much as drawing many. */
let drawn = Buffer.alloc(0);

/** One digest for one set of arguments, whatever order their members came in. */
export function digestOf(args: unknown): string {
  return createHash('sha256').update(canonical(args)).digest('base64url');
}

/** Text that is written as it is. */
class Literal {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** JSON with sorted members. Does not recurse: a client decides how deep its arguments are. */
function canonical(root: unknown): string {
  let text = '';
  const rest: unknown[] = [root];
  while (rest.length > 0) {
    const value = rest.pop();
    if (value instanceof Literal) text += value.text;
    else if (Array.isArray(value))
      pushReversed(
        rest,
        '[',
        value.map((each) => ['', each] as const),
        ']',
      );
    else if (typeof value === 'object' && value !== null)
      pushReversed(rest, '{', members(value), '}');
    else text += JSON.stringify(value) ?? 'null';
  }
  return text;
}

type Labelled = readonly [label: string, value: unknown];

function members(value: object): Labelled[] {
  const sorted = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return sorted.map(([key, each]) => [`${JSON.stringify(key)}:`, each]);
}

/** Puts a list on a stack, so that it comes off in its order. */
function pushReversed(
  stack: unknown[],
  open: string,
  items: readonly Labelled[],
  close: string,
): void {
  stack.push(new Literal(close));
  for (let at = items.length - 1; at >= 0; at--) {
    const [label, value] = items[at] ?? ['', null];
    stack.push(value, new Literal(at === 0 ? label : `,${label}`));
  }
  stack.push(new Literal(open));
}
