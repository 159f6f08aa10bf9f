import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { AtomicStateStore } from '../../src/stores/store.ts';
import { compiled } from './program.ts';

/** Which store the process opens. */
export type StoreAddress =
  | { readonly kind: 'sqlite'; readonly file: string }
  | {
      readonly kind: 'postgres';
      readonly url: string;
      readonly schema: string;
      readonly migrate?: boolean;
    };

/** A store in its own process, so that a test can race it, or kill it in the middle of a step. */
export interface StoreProcess {
  readonly store: AtomicStateStore;
  /** {@link takeSteps} in that process. */
  takeSteps(run: string, steps: number): Promise<number[]>;
  /** `kill -9`. Resolves once the process is dead. */
  kill9(): Promise<void>;
  stop(): Promise<void>;
}

export type Method = Exclude<keyof AtomicStateStore, 'contract'> | 'takeSteps';

export interface StoreCall {
  readonly id: number;
  readonly method: Method;
  readonly args: readonly unknown[];
}

export interface StoreAnswer {
  readonly id: number;
  readonly value?: unknown;
  readonly error?: string;
}

const CHILD = fileURLToPath(new URL('./store-process-child.ts', import.meta.url));

/** Starts the process. Resolves once its store is open. */
export async function startStoreProcess(address: StoreAddress): Promise<StoreProcess> {
  const child = fork(await compiled(CHILD), [JSON.stringify(address)], {
    serialization: 'advanced',
  });
  const [ready] = await Promise.race([once(child, 'message'), once(child, 'exit')]);
  if (ready !== 'ready') throw new Error(`The process of the store did not start: ${ready}`);
  const call = callsOf(child);
  return {
    store: remoteStore(call),
    takeSteps: (run, steps) => call('takeSteps', [run, steps]) as Promise<number[]>,
    kill9: () => end(child, 'SIGKILL'),
    stop: () => end(child, 'SIGTERM'),
  };
}

type Call = (method: Method, args: readonly unknown[]) => Promise<unknown>;

function callsOf(child: ChildProcess): Call {
  const waiting = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>();
  child.on('message', ({ id, value, error }: StoreAnswer) => {
    const caller = waiting.get(id);
    waiting.delete(id);
    if (error === undefined) caller?.resolve(value);
    else caller?.reject(new Error(error));
  });
  child.on('exit', () => {
    for (const { reject } of waiting.values()) reject(new Error('The process of the store ended'));
  });

  let calls = 0;
  return (method, args) => {
    calls += 1;
    const message: StoreCall = { id: calls, method, args };
    return new Promise((resolve, reject) => {
      waiting.set(message.id, { resolve, reject });
      child.send(message, (error) => error && reject(error));
    });
  };
}

function remoteStore(call: Call): AtomicStateStore {
  const methods = [
    'open',
    'read',
    'claim',
    'commit',
    'record',
    'freeze',
    'renew',
    'release',
    'end',
    'delete',
    'history',
    'append',
    'held',
    'stuck',
    'count',
    'list',
    'anonymize',
    'purge',
    'readSwitch',
    'swapSwitch',
  ] as const;
  const entries = methods.map((method) => [method, (...args: unknown[]) => call(method, args)]);
  return { contract: 1, ...Object.fromEntries(entries) };
}

async function end(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, 'exit');
  child.kill(signal);
  await gone;
}
