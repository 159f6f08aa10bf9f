import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { AtomicStateStore } from '../../src/stores/store.ts';

/** Which store the process opens. */
export type StoreAddress =
  | { readonly kind: 'sqlite'; readonly file: string }
  | { readonly kind: 'postgres'; readonly url: string; readonly schema: string; readonly migrate?: boolean };

/** A store in a process of its own, so that it can be raced against, or killed in the middle of a step. */
export interface StoreProcess {
  readonly store: AtomicStateStore;
  /** `kill -9`. Resolves once the process is dead. */
  kill9(): Promise<void>;
  stop(): Promise<void>;
}

export interface StoreCall {
  readonly id: number;
  readonly method: keyof AtomicStateStore;
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
  const child = fork(CHILD, [JSON.stringify(address)], {
    execArgv: ['--import', 'tsx'],
    serialization: 'advanced',
  });
  const [ready] = await Promise.race([once(child, 'message'), once(child, 'exit')]);
  if (ready !== 'ready') throw new Error(`The process of the store did not start: ${ready}`);
  return {
    store: remoteStore(child),
    kill9: () => end(child, 'SIGKILL'),
    stop: () => end(child, 'SIGTERM'),
  };
}

function remoteStore(child: ChildProcess): AtomicStateStore {
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
  const call = (method: keyof AtomicStateStore, args: readonly unknown[]) => {
    calls += 1;
    const message: StoreCall = { id: calls, method, args };
    return new Promise((resolve, reject) => {
      waiting.set(message.id, { resolve, reject });
      child.send(message, (error) => error && reject(error));
    });
  };
  const method =
    (_: unknown, name: string) =>
    (...args: unknown[]) =>
      call(name as keyof AtomicStateStore, args);
  return new Proxy(
    {},
    { get: (target, name) => (name === 'then' ? undefined : method(target, String(name))) },
  ) as AtomicStateStore;
}

async function end(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, 'exit');
  child.kill(signal);
  await gone;
}
