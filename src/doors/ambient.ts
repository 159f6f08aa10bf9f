/**
 * `import 'mcp-interlock/ambient'` lets code know that it runs inside a step: `currentStep()`
 * without an argument, and `runs.send()` and `runs.update()` without `{ step }`. Node keeps a
 * context for that, which costs each step some time, so only this entry makes one.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { turnOnAmbient } from '../session/current-step.ts';

turnOnAmbient(new AsyncLocalStorage());

export { currentStep } from '../session/current-step.ts';
