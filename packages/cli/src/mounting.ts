/**
 * The middlewares of a gate, as the options of a command say them. Hides what the commands that
 * gate have in common: in which order they stand, what they report, and how calls are recorded.
 */
import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { appendFile } from 'node:fs/promises';
import {
  type CallRecorder,
  type FsmGateOptions,
  fsmGate,
  recordCalls,
  type SessionStoreOptions,
  sessionStore,
  stateSync,
} from 'mcp-interlock';
import { choiceOf, durationOf, type Given } from './command-line.ts';
import type { GATE_OPTIONS } from './gate-options.ts';
import { LOG_FORMATS, type Log } from './log.ts';
import type { OpenStore } from './stores.ts';
import type { WorkflowFile } from './workflow-file.ts';

const VISIBILITIES = ['hide', 'stable', 'auto'] as const;
const UNBOUND = ['allow', 'refuse'] as const;

/** The options of a gate, checked. Times are in milliseconds. */
export function gateSettingsOf(given: Given<typeof GATE_OPTIONS>) {
  return {
    visibility: choiceOf('visibility', given.visibility ?? 'auto', VISIBILITIES),
    // Where it is not asked for, `auto` announces to the clients that need it.
    announce: given.announce ? true : undefined,
    unbound: choiceOf('unbound', given.unbound ?? 'allow', UNBOUND),
    enforce: !given.observe,
    recorder: recorderOf(given),
    maxStepMs: durationOf('max-step', given['max-step'] ?? '10m'),
    logFormat: choiceOf('log', given.log ?? 'text', LOG_FORMATS),
  };
}

/** Adds what is recorded to a file. The key is in a file beside it, which only its owner reads. */
function recorderOf(given: Given<typeof GATE_OPTIONS>): CallRecorder | undefined {
  const { record, 'record-key': named } = given;
  if (record === undefined) return undefined;
  const path = named ?? `${record}.key`;
  if (!existsSync(path)) writeFileSync(path, randomBytes(32).toString('hex'), { mode: 0o600 });
  return recordCalls({
    write: (lines) => appendFile(record, lines),
    key: readFileSync(path, 'utf8').trim(),
  });
}

/** What a gate is mounted with. */
interface Mounting
  extends Pick<FsmGateOptions, 'visibility' | 'announce' | 'unbound' | 'enforce' | 'maxStepMs'> {
  readonly recorder: CallRecorder | undefined;
  readonly sessions: SessionStoreOptions;
}

/** The middlewares of a file, in order. Their sessions stand first. */
export function mounted(
  { recorder, unbound, visibility, announce, enforce, maxStepMs, sessions: given }: Mounting,
  file: WorkflowFile,
  { store, bus }: OpenStore,
  log: Log,
) {
  const sessions = sessionStore({
    ...given,
    store,
    bus,
    onEvent: (event) => {
      log.event(event);
      recorder?.(event);
    },
    // Every failure is an event too.
    onError: () => {},
    onWarning: log.warn,
  });
  const options = { maxStepMs, visibility, announce, enforce };
  const gates = file.gates.map((gate, at) =>
    // The last gate decides about tools that none binds.
    fsmGate(gate, at === file.gates.length - 1 ? { ...options, unbound } : options),
  );
  const sync = file.sync === undefined ? [] : [stateSync(file.sync)];
  return { sessions, middlewares: [sessions, ...gates, ...sync] as const };
}
