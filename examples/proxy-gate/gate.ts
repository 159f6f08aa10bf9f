import express, { type Express } from 'express';
import { fsmGate, StateMachineGate, sessionStore, stateSync } from 'mcp-interlock';
import type { StateStore } from 'mcp-interlock/stores';
import { mcpProxy } from 'mcp-interlock-cli/proxy';

/**
 * A report is measured, then checked, then announced: an order of which the server behind the gate
 * knows nothing.
 */
export const report = new StateMachineGate({
  id: 'report',
  initial: 'started',
  states: {
    started: { on: { MEASURED: 'measured' } },
    measured: { on: { MEASURED: 'measured', CHECKED: 'checked' } },
    checked: { on: { ANNOUNCED: 'started' } },
  },
})
  .bindTool('get-sum', ['started', 'measured'], 'MEASURED')
  .bindTool('trigger-long-running-operation', ['measured'], 'CHECKED')
  .bindTool('echo', ['checked'], 'ANNOUNCED');

/**
 * Stands in front of an MCP server that `target` names without its path: `http://127.0.0.1:3001`.
 */
export function gateInFrontOf(target: string, store?: StateStore): Express {
  const app = express();
  // One route for the gate and the proxy: no path that the one does not match reaches the other.
  app.all(
    '/mcp',
    sessionStore({ store }),
    // Shorter than the 10 minutes of the default: where the server dies in mid-call, the run stays
    // busy that long.
    fsmGate(report, { maxStepMs: 60_000 }),
    stateSync({ policies: [{ match: 'get-sum', invalidates: ['get-structured-content'] }] }),
    mcpProxy(`${target}/mcp`),
  );
  return app;
}
