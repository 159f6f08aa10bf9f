/**
 * The middlewares of a gate, as the options of a command say them. Hides what the commands that gate have
 * in common: how runs are named and kept, and how calls are recorded.
 */
import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { appendFile } from 'node:fs/promises';
import {
  type CallRecorder,
  type FsmGateOptions,
  fsmGate,
  type Middleware,
  recordCalls,
  type SessionMiddleware,
  type SessionStoreOptions,
  sessionStore,
  stateSync,
} from 'mcp-interlock';
import { type CommandSpec, choiceOf, durationOf, type Given } from './command-line.ts';
import { LOG_FORMATS, type Log } from './log.ts';
import type { OpenStore } from './stores.ts';
import type { WorkflowFile } from './workflow-file.ts';

const VISIBILITIES = ['hide', 'stable', 'auto'] as const;
const UNBOUND = ['allow', 'refuse'] as const;

/** The options of each command that gates. */
export const GATE_OPTIONS = {
  visibility: {
    takes: 'WHAT',
    help:
      'what lists of tools show: hide (what is available), stable (every tool, with a note) ' +
      'or auto (stable for clients that are known not to list again). Default auto',
  },
  announce: { help: 'says in results what is available next; auto does so where it is needed' },
  unbound: {
    takes: 'WHAT',
    help:
      'what becomes of tools that no workflow binds, also of those that a later version of ' +
      'the server adds: allow or refuse. Default allow',
  },
  'max-step': {
    takes: 'TIME',
    help: 'the longest that a call of a bound tool takes. Default 10m',
  },
  observe: { help: 'enforces nothing: judges the calls, and lets each of them pass' },
  record: { takes: 'FILE', help: 'adds a line for each call, for replay and suggest' },
  'record-key': {
    takes: 'FILE',
    help:
      'the key by which recorded values are compared; made where it is not there. ' +
      'Default: the file of --record with .key behind it',
  },
  log: { takes: 'FORMAT', help: 'text or json. Default text' },
} as const satisfies CommandSpec['options'];

/** The same, checked. Times are in milliseconds. */
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
export interface Mounting
  extends Pick<FsmGateOptions, 'visibility' | 'announce' | 'unbound' | 'enforce' | 'maxStepMs'>,
    Pick<
      SessionStoreOptions,
      'principal' | 'withoutSession' | 'service' | 'idleMs' | 'maxBodyBytes' | 'maxMessageBytes'
    > {
  readonly keys: SessionStoreOptions['key'];
  readonly recorder: CallRecorder | undefined;
}

/** The middlewares of a file, in order. Their sessions stand first. */
export function mounted(
  { keys, recorder, visibility, announce, unbound, enforce, maxStepMs, ...kept }: Mounting,
  file: WorkflowFile,
  { store, bus }: OpenStore,
  log: Log,
): {
  readonly sessions: SessionMiddleware;
  readonly middlewares: readonly [SessionMiddleware, ...Middleware[]];
} {
  const { principal, withoutSession, service, idleMs, maxBodyBytes, maxMessageBytes } = kept;
  const sessions = sessionStore({
    ...{ store, bus, key: keys, principal, withoutSession, service, idleMs },
    ...{ maxBodyBytes, maxMessageBytes },
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
  return { sessions, middlewares: [sessions, ...gates, ...sync] };
}
