export type { Authorization } from './access.ts';
export type * from './api.ts';
export type { AmountOf, HeldStep, LookAt } from './held-step.ts';
export type { Share, SharedRun } from './inspected.ts';
export { type Inspector, inspector } from './inspector.ts';
export type { InspectorOptions } from './options.ts';
