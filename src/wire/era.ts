import type { Call } from './call.ts';
import { requestHeader } from './headers.ts';
import { JSON_RPC, META_CLAIM } from './json-rpc.ts';
import type { RequestPort } from './ports.ts';

/** MCP up to 2025-11-25 has sessions; since 2026-07-28 each request stands alone. */
export type Era = 'session' | 'stateless';

const STATELESS_SINCE = '2026-07-28';
const VERSION_HEADER = 'mcp-protocol-version';
/** What is said of two versions. */
export const DIFFERENT = 'the MCP-Protocol-Version header and the body name different versions';

/**
 * What makes a request belong to no era: it must be refused, since upstreams disagree about which
 * part of it counts.
 */
export interface Contradiction {
  readonly code: number;
  readonly message: string;
}

/** As much of an exchange as tells its era. */
export interface EraSource {
  readonly req: RequestPort;
  readonly messages: readonly Call[];
  readonly isBatch: boolean;
}

/**
 * The era of a request, which its body says: "A request carrying modern per-request `_meta` is
 * served statelessly" (MCP 2026-07-28, "Versioning"). The header may only repeat it (Streamable
 * HTTP, "Server Validation"). Upstreams of the session era do not check that: they would run a call
 * that claims to be stateless in whatever session the header names.
 */
export function eraOf({ req, messages, isBatch }: EraSource): Era | Contradiction {
  const claims = messages.map(claimOf).filter((each) => each !== undefined);
  if (isBatch && claims.length > 0) {
    return {
      code: JSON_RPC.INVALID_REQUEST,
      message: 'Invalid Request: a message of a batch names no protocol version of its own',
    };
  }
  const [claim] = claims;
  if (!isStateless(claim)) return 'session';
  const header = requestHeader(req, VERSION_HEADER);
  if (header === claim) return 'stateless';
  const fault =
    header === undefined
      ? `there is no MCP-Protocol-Version header, and the body names ${claim}`
      : DIFFERENT;
  return { code: JSON_RPC.HEADER_MISMATCH, message: `Bad Request: ${fault}` };
}

/** Whether the header alone says that the request is stateless, as for one without a body. */
export function headerSaysStateless(req: RequestPort): boolean {
  return isStateless(requestHeader(req, VERSION_HEADER));
}

/** Versions are dates, so their order is that of their text. */
function isStateless(version: unknown): version is string {
  return typeof version === 'string' && version >= STATELESS_SINCE;
}

/** What a message says of its version, whatever that is. */
export function claimOf({ message }: Call): unknown {
  return message.at('params', '_meta', META_CLAIM);
}
