import type { RawRequest } from '../helpers/raw.ts';
import { CLAIM, STATELESS } from '../helpers/two-eras.ts';

const SESSION = '2025-11-25';
const CAPABILITIES = 'io.modelcontextprotocol/clientCapabilities';

/** A call of a tool, parts of which may contradict each other. */
export interface Row {
  readonly name: string;
  /** The code with which the middlewares refuse it, for any tool and any upstream. */
  readonly refused?: number;
  /** The code with which they refuse it for a gated tool alone, which an upstream might run. */
  readonly gated?: number;
  request(tool: string): Required<Pick<RawRequest, 'headers' | 'body'>>;
}

type Codes = Pick<Row, 'refused' | 'gated'>;

const MISMATCH = -32020;
const INVALID_REQUEST = -32600;
const INVALID_PARAMS = -32602;

const meta = (claim: unknown) => ({ [CLAIM]: claim, [CAPABILITIES]: {} });

function headersOf(version: string | undefined, tool: string): Record<string, string> {
  const versioned: Record<string, string> =
    version === undefined ? {} : { 'mcp-protocol-version': version };
  return { ...versioned, 'mcp-method': 'tools/call', 'mcp-name': tool };
}

function message(tool: string, claim: unknown) {
  const params = { name: tool, arguments: {} };
  return {
    jsonrpc: '2.0',
    id: 1,
    method: 'tools/call',
    params: claim === undefined ? params : { ...params, _meta: meta(claim) },
  };
}

function claiming(
  name: string,
  claim: unknown,
  version: string | undefined,
  codes: Codes = {},
): Row {
  return {
    name,
    ...codes,
    request: (tool) => ({ headers: headersOf(version, tool), body: message(tool, claim) }),
  };
}

function batching(
  name: string,
  claim: unknown,
  version: string | undefined,
  codes: Codes = {},
): Row {
  return {
    name,
    ...codes,
    request: (tool) => {
      const headers = headersOf(version, tool);
      // A header that names a tool must be true of each message.
      const first = { ...message(headers['mcp-name'] ?? 'cart.view', undefined), id: 2 };
      return { headers, body: [first, message(tool, claim)] };
    },
  };
}

/** The text of a body with these members written into its `_meta`. */
function writing(
  name: string,
  members: readonly string[],
  version: string | undefined,
  codes: Codes = {},
): Row {
  return {
    name,
    ...codes,
    request(tool) {
      const text = JSON.stringify(message(tool, 'x'));
      const body = text.replace(
        /"_meta":\{[^}]*\{\}\}/,
        `"_meta":{${members.join(',')},"${CAPABILITIES}":{}}`,
      );
      return { headers: headersOf(version, tool), body };
    },
  };
}

const claim = (value: string): string => `"${CLAIM}":"${value}"`;

/**
 * What a request may say of its era in its body and in its header, and how the two may disagree.
 */
export const CONTRADICTIONS: readonly Row[] = [
  claiming('2026 in both', STATELESS, STATELESS),
  claiming('2026 in the body, 2025 in the header', STATELESS, SESSION, { refused: MISMATCH }),
  claiming('2026 in the body, no header', STATELESS, undefined, { refused: MISMATCH }),
  claiming('2026 in the body, two versions in the header', STATELESS, `${STATELESS}, ${SESSION}`, {
    refused: MISMATCH,
  }),
  claiming('2025 in both', SESSION, SESSION),
  claiming('2025 in the body, 2026 in the header', SESSION, STATELESS, { gated: MISMATCH }),
  claiming('a number in the body, 2026 in the header', 20260728, STATELESS, {
    gated: INVALID_PARAMS,
  }),
  claiming('a list in the body, 2025 in the header', [STATELESS], SESSION),
  claiming('null in the body, no header', null, undefined),
  claiming('nothing in the body, 2026 in the header', undefined, STATELESS, {
    gated: INVALID_PARAMS,
  }),
  claiming('nothing in the body, 2025 in the header', undefined, SESSION),
  claiming('nothing in either', undefined, undefined),
  claiming('an unknown version in both', '2027-01-01', '2027-01-01'),
  batching('2026 in an array, 2026 in the header', STATELESS, STATELESS, {
    refused: INVALID_REQUEST,
  }),
  batching('2026 in an array, 2025 in the header', STATELESS, SESSION, {
    refused: INVALID_REQUEST,
  }),
  batching('2025 in an array, 2025 in the header', SESSION, SESSION, { refused: INVALID_REQUEST }),
  batching('an array, 2026 in the header', undefined, STATELESS, { gated: INVALID_PARAMS }),
  batching('an array, 2025 in the header', undefined, SESSION),
  writing(
    '2026, then 2025 in the body, 2025 in the header',
    [claim(STATELESS), claim(SESSION)],
    SESSION,
    {
      refused: INVALID_REQUEST,
    },
  ),
  writing(
    '2025, then 2026 in the body, 2026 in the header',
    [claim(SESSION), claim(STATELESS)],
    STATELESS,
    {
      refused: INVALID_REQUEST,
    },
  ),
  writing(
    'the claim in capitals, 2025 in the header',
    [claim(STATELESS).replace('io.m', 'IO.M')],
    SESSION,
  ),
  writing(
    'the claim in capitals, 2026 in the header',
    [claim(STATELESS).replace('io.m', 'IO.M')],
    STATELESS,
    { gated: INVALID_PARAMS },
  ),
  writing(
    'the claim in capitals and in small letters, 2025 in the header',
    [claim(STATELESS).replace('io.m', 'IO.M'), claim(SESSION)],
    SESSION,
    { refused: INVALID_REQUEST },
  ),
  writing(
    'the claim escaped, 2025 in the header',
    [claim(STATELESS).replace('io.', '\\u0069o.')],
    SESSION,
    {
      refused: MISMATCH,
    },
  ),
  {
    name: 'another name in Mcp-Name',
    refused: MISMATCH,
    request: (tool) => ({
      headers: { ...headersOf(STATELESS, tool), 'mcp-name': 'cart.other' },
      body: message(tool, STATELESS),
    }),
  },
  {
    name: 'another method in Mcp-Method',
    refused: MISMATCH,
    request: (tool) => ({
      headers: { ...headersOf(STATELESS, tool), 'mcp-method': 'tools/list' },
      body: message(tool, STATELESS),
    }),
  },
  {
    name: 'no Mcp-Name',
    gated: MISMATCH,
    request: (tool) => ({
      headers: { 'mcp-protocol-version': STATELESS, 'mcp-method': 'tools/call' },
      body: message(tool, STATELESS),
    }),
  },
  {
    name: 'the name encoded in Mcp-Name',
    request: (tool) => ({
      headers: { ...headersOf(STATELESS, `=?base64?${Buffer.from(tool).toString('base64')}?=`) },
      body: message(tool, STATELESS),
    }),
  },
  {
    name: 'no capabilities in the body',
    request(tool) {
      const { params, ...rest } = message(tool, undefined);
      const body = { ...rest, params: { ...params, _meta: { [CLAIM]: STATELESS } } };
      return { headers: headersOf(STATELESS, tool), body };
    },
  },
];
