import type { IncomingMessage, ServerResponse } from 'node:http';
import * as z from 'zod';
import { functionOption } from './options.ts';
import { DEFAULT_LIMITS, Exchange, type WireLimits } from './wire/exchange.ts';
import { JSON_RPC } from './wire/json-rpc.ts';

/** Middleware for Express 4, Express 5 and Connect-style hosts. */
export type Middleware = (req: IncomingMessage, res: ServerResponse, next: (error?: unknown) => void) => void;

/** Options that each of the three middlewares takes. */
export interface CommonOptions {
  /** The largest request body, in bytes. Default 4 MiB. The middleware that is mounted first decides. */
  maxBodyBytes?: number | undefined;
  /** The most messages in one batch. Default 50. The middleware that is mounted first decides. */
  maxBatch?: number | undefined;
  /** The largest message of a response that is held for inspection, in bytes. Default 16 MiB. The middleware that is mounted first decides. */
  maxMessageBytes?: number | undefined;
  /** Told of every failure that no client is told of, with the store's own error as `cause`. Default: `console.error`. */
  onError?: ((error: unknown) => void) | undefined;
  /** Told once of each likely mistake. Default: `process.emitWarning`. */
  onWarning?: ((warning: string) => void) | undefined;
}

const count = z.int().min(1);

/** The schema of {@link CommonOptions}, with its defaults. */
export const commonShape = {
  maxBodyBytes: count.default(DEFAULT_LIMITS.maxBodyBytes),
  maxBatch: count.default(DEFAULT_LIMITS.maxBatch),
  maxMessageBytes: count.default(DEFAULT_LIMITS.maxMessageBytes),
  onError: functionOption<(error: unknown) => void>().default(() => (error: unknown) => console.error(error)),
  onWarning: functionOption<(warning: string) => void>().default(() => emitWarning),
};

function emitWarning(warning: string): void {
  process.emitWarning(warning, 'InterlockWarning');
}

export interface CommonConfig extends WireLimits {
  readonly onError: (error: unknown) => void;
}

/** What a middleware does with an exchange: `forward` hands it on, `answered` says that it is dealt with. */
export type Enter = (exchange: Exchange) => Promise<'answered' | ((next: () => void) => void)>;

/** Runs a middleware's part of an exchange; nothing that goes wrong in it is forwarded or escapes. */
export function withExchange(config: CommonConfig, enter: Enter): Middleware {
  const onError = safely(config.onError);
  return function interlock(req, res, next) {
    // A preflight asks about the route, and carries neither session nor message.
    if (req.method === 'OPTIONS') return next();
    void pass(config, onError, enter, req, res, next);
  };
}

async function pass(
  config: CommonConfig,
  onError: (error: unknown) => void,
  enter: Enter,
  req: IncomingMessage,
  res: ServerResponse,
  next: (error?: unknown) => void,
): Promise<void> {
  let exchange: Exchange | undefined;
  let go: () => void;
  try {
    exchange = await Exchange.of(req, res, config, onError);
    if (exchange === undefined) return;
    const opened = exchange;
    const forward = await enter(opened);
    if (forward === 'answered') return;
    go = () => opened.forward(() => forward(next));
  } catch (error) {
    onError(error);
    await failClosed(exchange, res).catch(onError);
    return;
  }
  go();
}

async function failClosed(exchange: Exchange | undefined, res: ServerResponse): Promise<void> {
  if (exchange !== undefined && !res.headersSent) {
    await exchange.reject(500, JSON_RPC.INTERNAL_ERROR, 'Internal error');
  } else {
    res.destroy();
  }
}

/** An observer's own failure must not become a client's. */
function safely(observer: (error: unknown) => void): (error: unknown) => void {
  return (error) => {
    try {
      observer(error);
    } catch (second) {
      console.error(second);
    }
  };
}
