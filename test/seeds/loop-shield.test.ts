import { describe, expect, it, onTestFinished } from 'vitest';
import { fsmGate, memoryStore, runsOf, StateMachineGate, sessionStore } from '../../src/index.ts';
import { connect } from '../helpers/client.ts';
import { toolServer } from '../helpers/tool-server.ts';
import { startUpstream } from '../helpers/upstream.ts';

const TOOLS = ['search_kb', 'check_status', 'note_symptom', 'transfer_to_human'];

/** `maxConsecutiveTools` is `max`, `fallbackState` is `fallback: { state }`. */
function support(options: object) {
  return new StateMachineGate(
    {
      id: 'support',
      initial: 'DIAGNOSIS',
      states: {
        DIAGNOSIS: { on: { ESCALATE: 'ESCALATION', NOTED: 'TREATMENT' } },
        TREATMENT: { on: { ESCALATE: 'ESCALATION' } },
        ESCALATION: {},
      },
    },
    { loopShield: { max: 3, mode: 'repeated', fallback: { state: 'ESCALATION' }, ...options } },
  )
    .bindTool('search_kb', ['DIAGNOSIS', 'TREATMENT'])
    .bindTool('check_status', ['DIAGNOSIS', 'TREATMENT'])
    .bindTool('note_symptom', 'DIAGNOSIS', 'NOTED')
    .bindTool('transfer_to_human', 'ESCALATION');
}

async function serve(options: object = {}) {
  const gate = support(options);
  const sessions = sessionStore({ store: memoryStore() });
  const upstream = await startUpstream({
    shape: { mode: 'stateless' },
    middlewares: [sessions, fsmGate(gate)],
    makeServer: toolServer(TOOLS),
  });
  onTestFinished(upstream.close);
  const client = await connect(upstream.url);
  onTestFinished(() => client.close());
  const run = String(client.transport.sessionId);
  return { client, run, runs: runsOf(gate, { sessions }), ledger: upstream.ledger };
}

const refusalOf = ({ meta }: { meta: Record<string, unknown> }) =>
  meta['mcp-interlock/refusal'] as { reason: string; state: string } | undefined;

describe('a loop shield: maxConsecutiveTools, mode, fallbackState and onLoop', () => {
  it('lets one tool through three times, refuses the fourth call, and the run has fallen back', async () => {
    const loops: object[] = [];
    const { client, run, runs, ledger } = await serve({
      onLoop: (loop: object) => void loops.push(loop),
    });
    for (const query of ['a', 'b', 'c'])
      expect((await client.call('search_kb', { query })).isError).toBe(false);
    const refused = await client.call('search_kb', { query: 'd' });
    expect(refusalOf(refused)).toMatchObject({ reason: 'loop', state: 'ESCALATION' });
    expect(refused.text).toContain('Available now: transfer_to_human.');
    expect(ledger.calls).toEqual(['search_kb', 'search_kb', 'search_kb']);
    expect(await client.tools()).toEqual(['transfer_to_human']);
    expect((await client.call('transfer_to_human')).isError).toBe(false);
    expect(loops).toEqual([
      { run, workflow: 'support', tool: 'search_kb', state: 'DIAGNOSIS', calls: 4, max: 3 },
    ]);
    expect((await runs.read(run))?.snapshot.state).toBe('ESCALATION');
  });

  it('counts each tool by itself when it is about repetitions, and all of them together when about any calls', async () => {
    const calls = ['search_kb', 'check_status', 'search_kb', 'check_status'];
    for (const [mode, reasons] of [
      ['repeated', [undefined, undefined, undefined, undefined]],
      ['consecutive', [undefined, undefined, undefined, 'loop']],
    ] as const) {
      const { client } = await serve({ mode });
      const answers = [];
      for (const tool of calls) answers.push(refusalOf(await client.call(tool))?.reason);
      expect(answers).toEqual(reasons);
    }
  });

  it('begins to count anew with each move', async () => {
    const { client } = await serve();
    for (const _ of [1, 2, 3]) await client.call('search_kb');
    await client.call('note_symptom');
    for (const _ of [1, 2, 3]) expect((await client.call('search_kb')).isError).toBe(false);
    expect(refusalOf(await client.call('search_kb'))?.reason).toBe('loop');
  });

  it('falls back past any guard', async () => {
    const gate = support({}).bindTool('escalate', 'DIAGNOSIS', {
      success: 'ESCALATE',
      guard: () => false,
    });
    const upstream = await startUpstream({
      shape: { mode: 'stateless' },
      middlewares: [sessionStore(), fsmGate(gate)],
      makeServer: toolServer([...TOOLS, 'escalate']),
    });
    onTestFinished(upstream.close);
    const client = await connect(upstream.url);
    onTestFinished(() => client.close());
    expect(refusalOf(await client.call('escalate'))?.reason).toBe('guard');
    for (const _ of [1, 2, 3, 4]) await client.call('search_kb');
    expect(await client.tools()).toEqual(['transfer_to_human']);
  });

  it('is off without the option', async () => {
    const gate = new StateMachineGate({ initial: 'DIAGNOSIS', states: { DIAGNOSIS: {} } }).bindTool(
      'search_kb',
      'DIAGNOSIS',
    );
    const upstream = await startUpstream({
      shape: { mode: 'stateless' },
      middlewares: [sessionStore(), fsmGate(gate)],
      makeServer: toolServer(['search_kb']),
    });
    onTestFinished(upstream.close);
    const client = await connect(upstream.url);
    onTestFinished(() => client.close());
    for (const _ of Array.from({ length: 10 }))
      expect((await client.call('search_kb')).isError).toBe(false);
  });
});
