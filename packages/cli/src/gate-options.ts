import type { CommandSpec } from './command-line.ts';

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
