import type { AddressInfo } from 'node:net';
import { gateInFrontOf } from './gate.ts';

const target = process.env.TARGET ?? 'http://127.0.0.1:3001';

const server = gateInFrontOf(target).listen(Number(process.env.PORT ?? 3000), '127.0.0.1', () => {
  const { port } = server.address() as AddressInfo;
  console.log(`http://127.0.0.1:${port}/mcp stands in front of ${target}/mcp`);
});
