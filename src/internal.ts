/**
 * What the packages beside this one take of its inside. They come with exactly this version of it;
 * no app may import this entry, which changes with any release.
 */

export { windowWords } from './basics/clock.ts';
export { quoteNames } from './basics/errors.ts';
export { isGlob } from './basics/glob.ts';
export { nearestName, newToken, rightNames, SESSION_HEADER } from './basics/names.ts';
export {
  functionOption,
  isTable,
  lazily,
  lazyOptions,
  type ParsedBy,
  parseOptions,
  showValue,
  tableOption,
} from './basics/options.ts';
export {
  byTime,
  callIn,
  type EndLine,
  HIDDEN_NAME,
  parseCallLine,
  type RecordedLine,
  type RecordedValues,
  type StartLine,
} from './calls/calls.ts';
export { sessionsOf } from './doors/session-store.ts';
export { FollowedRun, type FollowedStep, type FollowedVerdict } from './follow/followed-run.ts';
export { RecordedArguments, RecordedReader } from './follow/recorded-values.ts';
export { ToolQuestion } from './gate/consult.ts';
export type { StandingRules } from './gate/standing.ts';
export { parsePolicies } from './policy/engine.ts';
export { defaultKeys, parseKeys } from './session/run-key.ts';
export type { Outcome } from './step/outcome.ts';
export { isAtomicStore } from './stores/adapt.ts';
export { TOKENS_KEPT } from './stores/run-state.ts';
export {
  isObject,
  JSON_RPC,
  type JsonObject,
  META_CLAIM,
  META_CLIENT,
  META_PREFIX,
} from './wire/json-rpc.ts';
export { parseSseEvent, SseSplitter } from './wire/sse.ts';
export { availabilityNote } from './workflow/advice.ts';
export {
  type AnyBinding,
  type BindingKind,
  eventNamed,
  eventsSent,
  isChosen,
  kindOfCalls,
} from './workflow/binding.ts';
export { NotRecorded } from './workflow/bound-tools.ts';
export { type GivenFact, givenFactsOption } from './workflow/call-rules.ts';
export { type ChartNode, type ChartTree, covers, eventsOfNode } from './workflow/chart.ts';
export { readerOf } from './workflow/condition.ts';
export { scaled } from './workflow/counting.ts';
export { compareDecimals, type Decimal, decimalOf, showDecimal } from './workflow/decimal.ts';
export { type Decided, NOTHING, usedBy } from './workflow/facts.ts';
export { assertGate } from './workflow/gate.ts';
export { type CheckedLimit, type CheckedSum, isBoundByCalls } from './workflow/limits.ts';
export type { Order } from './workflow/order.ts';
export type { Mark } from './workflow/order-model.ts';
export { callWith } from './workflow/own-call.ts';
export {
  ANY_STATE,
  atomsOf,
  type BoundState,
  type BoundStates,
  type Changes,
  type Model,
  type Position,
  showState,
} from './workflow/position.ts';
export type { Leaf, ValueSource } from './workflow/rule-parts.ts';
export { saidBy, type Test } from './workflow/rule-tests.ts';
export { partsToReport, pathWords } from './workflow/rule-words.ts';
export { isLeaf, leavesOf, type Requirement, windowsOf } from './workflow/rules.ts';
export { statechartModel } from './workflow/statechart.ts';
export { AFTER, BEGIN, FREEZE, RESTART, UNFREEZE } from './workflow/stored.ts';
export type { Workflow } from './workflow/workflow.ts';
export type { XMachine, XNode, XSnapshot, XTransition } from './workflow/xstate.ts';
