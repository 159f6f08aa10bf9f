import type {
  CreateTaskRequestHandlerExtra,
  TaskRequestHandlerExtra,
} from '@modelcontextprotocol/sdk/experimental/tasks/interfaces.js';
import { InMemoryTaskStore } from '@modelcontextprotocol/sdk/experimental/tasks/stores/in-memory.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js';
import { onTestFinished } from 'vitest';
import * as z from 'zod';
import type { RawSession, WireMessage } from './raw.ts';
import type { Ledger } from './upstream.ts';

/** Tasks of SDK v1, which end when the test says so; several upstreams may share them. */
export interface Tasks {
  readonly store: InMemoryTaskStore;
  /** Ends a task as its tool does, and tells the session's stream. */
  finish(taskId: string, text: string, status?: 'completed' | 'failed'): Promise<void>;
  readonly makeServer: (ledger: Ledger) => McpServer;
}

/** The cart's tools as tasks, except `cart.view`. */
export function startTasks(): Tasks {
  const store = new InMemoryTaskStore();
  onTestFinished(() => store.cleanup());
  const finishing = new Map<
    string,
    (status: 'completed' | 'failed', result: CallToolResult) => Promise<void>
  >();
  return {
    store,
    async finish(taskId, text, status = 'completed') {
      const result = { content: [{ type: 'text' as const, text }], isError: status === 'failed' };
      await finishing.get(taskId)?.(status, result);
    },
    makeServer(ledger) {
      const tasks = { list: {}, cancel: {}, requests: { tools: { call: {} } } };
      const server = new McpServer(
        { name: 'cart', version: '1.0.0' },
        { capabilities: { tools: {}, tasks }, taskStore: store },
      );
      for (const name of ['cart.add_item', 'cart.checkout', 'cart.pay', 'audit']) {
        const config = {
          description: `Does ${name}.`,
          inputSchema: { sku: z.string().optional() },
          execution: { taskSupport: 'optional' as const },
        };
        server.experimental.tasks.registerToolTask(name, config, {
          async createTask(_args: unknown, extra: CreateTaskRequestHandlerExtra) {
            ledger.calls.push(name);
            const task = await extra.taskStore.createTask({
              ttl: extra.taskRequestedTtl ?? null,
              pollInterval: 5,
            });
            finishing.set(task.taskId, (status, result) =>
              // A server for one request has no client any more that it could tell.
              extra.taskStore.storeTaskResult(task.taskId, status, result).catch(() => {}),
            );
            return { task };
          },
          getTask: (_args: unknown, extra: TaskRequestHandlerExtra) =>
            extra.taskStore.getTask(extra.taskId),
          getTaskResult: async (_args: unknown, extra: TaskRequestHandlerExtra) =>
            (await extra.taskStore.getTaskResult(extra.taskId)) as CallToolResult,
        });
      }
      server.registerTool('cart.view', {}, () => ({ content: [] }));
      return server;
    },
  };
}

/** Calls a tool as a task, and resolves to the task's id. */
export async function createTask(
  session: RawSession,
  name: string,
  task: { readonly ttl?: number } = { ttl: 60_000 },
): Promise<string> {
  const { result }: WireMessage = await session.ask('tools/call', { name, arguments: {}, task });
  return String(result.task.taskId);
}
