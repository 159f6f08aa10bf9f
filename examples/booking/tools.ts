import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { currentStep, type StepSource } from 'mcp-interlock';
import * as z from 'zod';
import { type Draft, draftOf } from './booking.ts';
import type { Slots } from './slots.ts';

/** Who may book, and the code that says that it is them. */
const PATIENTS: Readonly<Record<string, string>> = { ann: '1234', bob: '5678' };

/** The tools as they are without a gate: none of them asks whether it is its turn. */
export function makeServer(slots: Slots): McpServer {
  const server = new McpServer({ name: 'practice', version: '1.0.0' });

  server.registerTool('list_slots', { description: 'Lists the free slots.' }, async () => {
    return say((await slots.free()).join(', ') || 'None.');
  });
  server.registerTool(
    'verify_identity',
    {
      description: 'Checks who the patient is.',
      inputSchema: { patient: z.string(), code: z.string() },
      outputSchema: { verified: z.boolean() },
    },
    async ({ patient, code }, extra) => {
      const verified = Object.hasOwn(PATIENTS, patient) && PATIENTS[patient] === code;
      if (verified) note(extra, { patient });
      return {
        ...say(verified ? `This is ${patient}.` : 'Wrong code.'),
        structuredContent: { verified },
      };
    },
  );
  server.registerTool(
    'choose_slot',
    { description: 'Chooses a slot, which is not booked yet.', inputSchema: { slot: z.string() } },
    async ({ slot }, extra) => {
      note(extra, { slot });
      return say(`${slot} is chosen.`);
    },
  );
  server.registerTool(
    'confirm_booking',
    { description: 'Books the slot that was chosen.', outputSchema: { booked: z.boolean() } },
    async (extra) => {
      const { slot = '', patient = '' } = draftOf(currentStep(extra)?.context);
      const booked = await slots.take(slot, patient);
      const text = booked ? `${slot} is booked for ${patient}.` : `${slot} was taken a moment ago.`;
      return { ...say(text), structuredContent: { booked } };
    },
  );
  server.registerTool(
    'send_confirmation',
    { description: 'Sends the patient a letter.' },
    async () => {
      return say('The letter is on its way.');
    },
  );
  return server;
}

/** Adds to the run's shared data; it is saved together with the move. */
function note(extra: StepSource, more: Draft): void {
  currentStep(extra)?.update((context) => ({ ...draftOf(context), ...more }));
}

function say(text: string) {
  return { content: [{ type: 'text' as const, text }] };
}
