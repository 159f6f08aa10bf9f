import { newToken } from '../session/ids.ts';
import { requestHeader, setRequestHeader } from '../wire/headers.ts';
import type { Incoming } from '../wire/incoming.ts';
import type { RequestPort } from '../wire/ports.ts';

const NAME_HEADER = 'mcp-name';

/** Asks the upstream for a tool that it surely does not have, so that the answer has the upstream's own shape. */
export function askForAlias(
  req: RequestPort,
  { message }: Incoming,
  aliases: Map<string, string>,
  tool: string,
): void {
  const alias = aliases.get(tool) ?? `t${newToken()}`;
  aliases.set(tool, alias);
  message.set(['params', 'name'], alias);
  // The header repeats the name in the stateless era, and an upstream would tell both where they differ.
  if (requestHeader(req, NAME_HEADER) !== undefined) setRequestHeader(req, NAME_HEADER, alias);
}
