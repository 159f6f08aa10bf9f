import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { gateInFrontOf, report } from './gate.ts';
import { memoryStore, runsOf } from 'mcp-interlock';
import { freePort } from '../../test/services/ports.ts';
import { RawSession, callOf, stream, sendAndHold } from '../../test/helpers/raw.ts';
import { connect } from '../../test/helpers/client.ts';
const port = await freePort();
const t0 = Date.now();
const log = (...a: unknown[]) => console.log(Date.now() - t0, ...a);
const child = spawn(process.execPath, [fileURLToPath(import.meta.resolve('@modelcontextprotocol/server-everything/dist/index.js')), 'streamableHttp'], { env: { ...process.env, PORT: String(port) }, stdio: ['ignore', 'pipe', 'pipe'] });
child.stdout.on('data', (d) => log('UP', String(d).trim()));
await new Promise<void>((r) => child.stderr.on('data', (d) => { log('UPERR', String(d).trim()); r(); }));
const store = memoryStore();
const runs = runsOf(report, { store });
const gate = gateInFrontOf(`http://127.0.0.1:${port}`, store).listen(0, '127.0.0.1');
await new Promise((r) => gate.once('listening', r));
const url = new URL(`http://127.0.0.1:${(gate.address() as any).port}/mcp`);
const client = await connect(url);
log(await client.tools());
log(await client.call('echo', { message: 'x' }));
log(await client.call('get-sum', { a: 1, b: 2 }));
log(await client.tools());
log(await client.call('trigger-long-running-operation', { duration: 0.5, steps: 5 }));
log(client.log);
const raw = await RawSession.begin(url);
log((await raw.post(callOf(1, 'get-sum', { a: 1, b: 2 }))).text);
const s = await raw.stream({ ...callOf(2, 'trigger-long-running-operation', { duration: 2, steps: 4 }), params: { name: 'trigger-long-running-operation', arguments: { duration: 2, steps: 4 }, _meta: { progressToken: 'p' } } });
log(s.status, s.headers);
await new Promise((r) => setTimeout(r, 700));
log('so far', s.text);
s.cut();
for (let i = 0; i < 8; i++) { await new Promise((r) => setTimeout(r, 400)); log(await runs.read(raw.id)); }
log(await raw.tools());
log('lastid', s.lastEventId);
const again = await raw.listen(s.lastEventId);
await new Promise((r) => setTimeout(r, 300));
log(again.status, again.text);
again.cut();
// GET stream leave and come back
const g = await raw.listen(); log('GET', g.status); g.cut();
await new Promise((r) => setTimeout(r, 100));
const g2 = await raw.listen(); log('GET2', g2.status, g2.text);
g2.cut();
// unheld: ungated long call? disconnect
// upstream killed mid call
await raw.call('echo', { message: 'done' });
await raw.call('get-sum', { a: 1, b: 2 });
const k = await raw.stream({ ...callOf(7, 'x'), params: { name: 'trigger-long-running-operation', arguments: { duration: 20, steps: 40 }, _meta: { progressToken: 'p' } } });
await new Promise((r) => setTimeout(r, 700));
log('kill'); child.kill('SIGKILL');
for (let i = 0; i < 4; i++) { await new Promise((r) => setTimeout(r, 500)); log(k.ended, k.text.slice(-600), await runs.read(raw.id)); }
const d = await raw.post(callOf(9, 'get-sum', { a: 1, b: 2 })); log(d.status, d.headers, d.text);
log(await runs.read(raw.id));
process.exit();
