import { requestHeader, setRequestHeader } from '../wire/headers.ts';
import type { Incoming } from '../wire/incoming.ts';
import type { RequestPort } from '../wire/ports.ts';

const NAME_HEADER = 'mcp-name';

/** What is asked for, by the param that names it, and how a name is made up that the upstream surely does not know. */
export interface Hidden {
  readonly param: 'name' | 'uri';
  readonly name: string;
  readonly makeAlias: () => string;
}

/** Asks the upstream for what it surely does not have, so that the answer has the upstream's own shape. */
export function askForAlias(
  req: RequestPort,
  { message }: Incoming,
  aliases: Map<string, string>,
  { param, name, makeAlias }: Hidden,
): void {
  const alias = aliases.get(name) ?? makeAlias();
  aliases.set(name, alias);
  message.set(['params', param], alias);
  // The header repeats the name in the stateless era, and an upstream would tell both where they differ.
  if (requestHeader(req, NAME_HEADER) !== undefined) setRequestHeader(req, NAME_HEADER, alias);
}
