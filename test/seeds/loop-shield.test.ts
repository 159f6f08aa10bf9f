import { describe, expect, it } from 'vitest';
import { StateMachineGate } from '../../src/index.ts';
import { scene } from '../helpers/scene.ts';
import { toolServer } from '../helpers/tool-server.ts';

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

/** A client of that support, which has these tools. */
async function hotline(workflow: StateMachineGate<string, string>, tools = TOOLS) {
  const shape = { mode: 'stateless' } as const;
  const app = await scene({ workflow, shape, makeServer: toolServer(tools) });
  return { ...app, client: await app.client() };
}

const refusalOf = ({ meta }: { meta: Record<string, unknown> }) =>
  meta['mcp-interlock/refusal'] as { reason: string } | undefined;

describe('a loop shield: maxConsecutiveTools, mode, fallbackState and onLoop', () => {
  it('allows a tool three times, refuses the fourth call, and moves the run back', async () => {
    const loops: object[] = [];
    const onLoop = (loop: object) => void loops.push(loop);
    const { client, run, ledger } = await hotline(support({ onLoop }));
    for (const query of ['a', 'b', 'c']) await client.calls('search_kb', { query });
    const refused = await client.isRefused('search_kb', 'loop', { query: 'd' });
    expect(refusalOf(refused)).toMatchObject({ state: 'ESCALATION' });
    expect(refused.text).toContain('Available now: transfer_to_human.');
    expect(ledger.calls).toEqual(['search_kb', 'search_kb', 'search_kb']);
    await client.sees(['transfer_to_human']);
    await client.calls('transfer_to_human');
    const about = { workflow: 'support', tool: 'search_kb', state: 'DIAGNOSIS', calls: 4, max: 3 };
    expect(loops).toEqual([{ run: client.run, ...about }]);
    await run(client.run).isIn('ESCALATION');
  });

  it('counts each tool alone for repetitions, and all tools together for any calls', async () => {
    const calls = ['search_kb', 'check_status', 'search_kb', 'check_status'];
    for (const [mode, reasons] of [
      ['repeated', [undefined, undefined, undefined, undefined]],
      ['consecutive', [undefined, undefined, undefined, 'loop']],
    ] as const) {
      const { client } = await hotline(support({ mode }));
      const answers = [];
      for (const tool of calls) answers.push(refusalOf(await client.raw.call(tool))?.reason);
      expect(answers).toEqual(reasons);
    }
  });

  it('begins to count again with each move', async () => {
    const { client } = await hotline(support({}));
    for (const _ of [1, 2, 3]) await client.calls('search_kb');
    await client.calls('note_symptom');
    for (const _ of [1, 2, 3]) await client.calls('search_kb');
    await client.isRefused('search_kb', 'loop');
  });

  it('falls back past any guard', async () => {
    const gate = support({}).bindTool('escalate', 'DIAGNOSIS', {
      success: 'ESCALATE',
      guard: () => false,
    });
    const { client } = await hotline(gate, [...TOOLS, 'escalate']);
    await client.isRefused('escalate', 'guard');
    for (const _ of [1, 2, 3]) await client.calls('search_kb');
    await client.isRefused('search_kb', 'loop');
    await client.sees(['transfer_to_human']);
  });

  it('is off without the option', async () => {
    const gate = new StateMachineGate({ initial: 'DIAGNOSIS', states: { DIAGNOSIS: {} } }).bindTool(
      'search_kb',
      'DIAGNOSIS',
    );
    const { client } = await hotline(gate, ['search_kb']);
    for (const _ of Array.from({ length: 10 })) await client.calls('search_kb');
  });
});
