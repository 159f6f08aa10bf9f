/**
 * `import 'mcp-interlock/ambient'` lets code find out by itself that it runs inside of a step: the
 * bare `currentStep()`, and `runs.send()` and `runs.update()` without `{ step }`. Each forwarded
 * step pays for the context that Node keeps for it, so only this entry makes one.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { turnOnAmbient } from './session/current-step.ts';

turnOnAmbient(new AsyncLocalStorage());

export { currentStep } from './session/current-step.ts';
