/**
 * One server in one column, given as two arguments. Sends its port to its parent, and ends with it.
 */
import type { AddressInfo } from 'node:net';
import { localhostHostValidation } from '@modelcontextprotocol/sdk/server/middleware/hostHeaderValidation.js';
import express, { type RequestHandler } from 'express';
import { memoryStore } from '../../../src/index.ts';
import type { ServerName } from '../plan.ts';
import { countCalls } from './evidence.ts';
import { type Column, middlewaresOf } from './mounts.ts';
import { routeOfV1 } from './sdk-v1.ts';
import { routeOfV2 } from './sdk-v2.ts';

const ROUTES: Record<ServerName, () => RequestHandler> = {
  'SDK v1': routeOfV1,
  'SDK v2': routeOfV2,
};

const [name, column] = process.argv.slice(2) as [ServerName, Column];
const { store, calls } = countCalls(memoryStore());

const app = express();
app.use(localhostHostValidation());
app.get('/store-calls', (_req, res) => void res.json(calls()));
app.use(express.json());
app.use('/mcp', ...[...middlewaresOf(column, store), ROUTES[name]()]);

process.on('disconnect', () => process.exit());
const listening = app.listen(0, '127.0.0.1', () =>
  process.send?.((listening.address() as AddressInfo).port),
);
