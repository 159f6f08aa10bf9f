/** Agents that buy something. Most go the right way, and the others learn from a refusal. */
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ToolListChangedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';

/** What came of the calls of all agents. */
export interface Played {
  readonly runs: number;
  calls: number;
  refused: number;
  paid: number;
}

/** Always the same agents, one after another. */
export async function play(url: URL, runs: number): Promise<Played> {
  const played: Played = { runs, calls: 0, refused: 0, paid: 0 };
  let seed = 1;
  // A linear congruential generator: chance that repeats.
  const chance = (share: number): boolean => {
    seed = (seed * 48_271) % 2_147_483_647;
    return seed / 2_147_483_647 < share;
  };
  for (let run = 0; run < runs; run++) await buy(url, `cart-${run}`, chance, played);
  return played;
}

async function buy(
  url: URL,
  cart: string,
  chance: (share: number) => boolean,
  played: Played,
): Promise<void> {
  const client = new Client({ name: 'agent', version: '1.0.0' });
  const list = async (): Promise<void> => void (await client.listTools());
  client.setNotificationHandler(ToolListChangedNotificationSchema, list);
  await client.connect(new StreamableHTTPClientTransport(url));
  await list();
  const call = async (name: string, args: Record<string, unknown>): Promise<string> => {
    const { isError, content } = await client.callTool({ name, arguments: args });
    played.calls += 1;
    if (isError === true) played.refused += 1;
    else if (name === 'pay') played.paid += 1;
    return isError === true ? JSON.stringify(content) : '';
  };
  const forgetsToCheckOut = chance(0.02);
  const paysAnotherCart = chance(0.015);
  await call('search', {});
  for (let items = 1; items === 1 || chance(0.5); items++)
    await call('add_item', { sku: `article-${items}` });
  if (!forgetsToCheckOut) await call('checkout', { cart });
  const paid = { cart: paysAnotherCart ? `${cart}0` : cart, amount: 10 };
  const refusal = await call('pay', paid);
  // It does what the refusal says.
  if (refusal.includes('checkout')) {
    await call('checkout', { cart });
    await call('pay', { cart, amount: 10 });
  }
  await client.close();
}
