/** Only the compiler checks this file, as it does `workflow.types.ts`. */
import type { IncomingMessage } from 'node:http';
import type { McpServer as McpServer1 } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { McpServer as McpServer2 } from '@modelcontextprotocol/server';
import type { Request as ExpressRequest } from 'express';
import * as z from 'zod';
import {
  type CurrentStep,
  currentStep,
  StateMachineGate,
  type StepSource,
} from '../../src/index.ts';
import type { Runs } from '../../src/runs/index.ts';

declare const server1: McpServer1, server2: McpServer2, runs: Runs, gate: StateMachineGate;
const inputSchema = z.object({ sku: z.string() });
const content: [] = [];

// What each SDK passes to a handler, with arguments and without.
server1.registerTool('a', { inputSchema: inputSchema.shape }, (_args, extra) => {
  currentStep(extra) satisfies CurrentStep | undefined;
  return { content };
});
server1.registerTool('b', { description: 'b' }, (extra) => {
  currentStep(extra, { gate })?.update(() => ({ sku: 'tea' }));
  return { content };
});
server2.registerTool('a', { inputSchema }, (_args, ctx) => {
  currentStep(ctx)?.idempotencyKey satisfies string | undefined;
  return { content };
});
server2.registerTool('b', {}, (ctx) => {
  const source: StepSource = ctx;
  currentStep(source);
  return { content };
});

// A request of either kind.
declare const req: ExpressRequest, message: IncomingMessage, request: Request;
currentStep(req);
currentStep(message);
currentStep(request);

// A gate with its own names, and without options.
const named = new StateMachineGate({ initial: 'open', states: { open: {} } });
currentStep(req, { gate: named });
currentStep(req, {});
currentStep(req, { gate: undefined });
currentStep();

// Neither.
// @ts-expect-error
currentStep(undefined);
// @ts-expect-error
currentStep({});
// @ts-expect-error
currentStep('extra');
// @ts-expect-error
currentStep(req, gate);
// @ts-expect-error
currentStep(req, { workflow: 'order' });

// `runs` takes a step; `resolve()` and `restart()` are not for use inside a step.
declare const step: CurrentStep | undefined;
void runs.send('run', 'GO', { step });
void runs.update('run', () => 1, { step, actor: 'job' });
// @ts-expect-error
void runs.send('run', 'GO', { step: 'step' });
// @ts-expect-error
void runs.restart('run', { step });
// @ts-expect-error
void runs.resolve('run', 'failed', { step });
