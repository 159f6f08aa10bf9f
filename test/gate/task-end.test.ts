import { describe, expect, it } from 'vitest';
import { createdTask, outcomeOf } from '../../src/gate/claimed-call.ts';
import { endInAnswer, endInNotice, type TaskQuestion } from '../../src/gate/tasks.ts';
import type { JsonObject } from '../../src/wire/json-rpc.ts';
import { Message } from '../../src/wire/message.ts';

const answer = (result: JsonObject) => new Message({ jsonrpc: '2.0', id: 1, result });
const notice = (method: string, params: JsonObject) =>
  new Message({ jsonrpc: '2.0', method, params });
const asking = (method: TaskQuestion['method']): TaskQuestion => ({ id: 1, method, taskId: 't' });
const DONE = { taskId: 't', status: 'completed', result: { content: [] } };
const STATUS = 'notifications/tasks/status';

describe('a created task', () => {
  it('is recognised in both shapes, even if an SDK adds other members', () => {
    const flat = { resultType: 'task', taskId: 't', ttlMs: 5, content: [] };
    expect(createdTask(answer(flat))).toEqual({ taskId: 't', ttlMs: 5 });
    expect(createdTask(answer({ task: { taskId: 't', ttl: 7 } }))).toEqual({
      taskId: 't',
      ttlMs: 7,
    });
    for (const ttl of [null, undefined, 0, -1, 'x'])
      expect(createdTask(answer({ task: { taskId: 't', ttl } }))).toEqual({
        taskId: 't',
        ttlMs: undefined,
      });
  });

  it('is no plain result, and has an id to ask for it', () => {
    expect(createdTask(answer({ content: [], taskId: 't' }))).toBeUndefined();
    expect(createdTask(answer({ resultType: 'complete', task: { taskId: 't' } }))).toBeUndefined();
    expect(
      createdTask(new Message({ jsonrpc: '2.0', id: 1, error: { code: 1, message: '' } })),
    ).toBeUndefined();
    for (const result of [{ resultType: 'task', ttlMs: 5 }, { task: {} }]) {
      expect(createdTask(answer(result))).toBeUndefined();
      expect(outcomeOf(answer(result)).kind).toBe('unknown');
    }
  });
});

describe('an answer', () => {
  it('is an end only of the task that was asked for', () => {
    const question = asking('tasks/get');
    expect(endInAnswer(answer(DONE), question)?.taskId).toBe('t');
    expect(endInAnswer(answer({ ...DONE, taskId: 'another' }), question)).toBeUndefined();
    expect(endInAnswer(answer({ ...DONE, status: 'working' }), question)).toBeUndefined();
  });

  it('with an error is an end where the error can only be the call’s own', () => {
    const failing = (code: number) =>
      endInAnswer(
        new Message({ jsonrpc: '2.0', id: 1, error: { code, message: '' } }),
        asking('tasks/result'),
      );
    for (const code of [-32768, -32603, -32602, -32001, -32000])
      expect(failing(code)).toBeUndefined();
    expect(failing(-31999)?.reply).toBeDefined();
    expect(outcomeOf(failing(17)?.reply ?? answer({})).kind).toBe('failed');
  });

  it('to tasks/cancel is an end only if it shows the task as cancelled', () => {
    const question = asking('tasks/cancel');
    const end = endInAnswer(answer({ taskId: 't', status: 'cancelled' }), question);
    expect(end).toMatchObject({ taskId: 't', reply: undefined });
    expect(endInAnswer(answer({ resultType: 'complete' }), question)).toBeUndefined();
  });

  it('keeps every character that a changed reply has not touched', () => {
    const text = `{"jsonrpc":"2.0","id":1,"result":{"taskId":"t","status":"completed","ttlMs":1.0,"result":{"n":10000000000000000001,"content":[]}}}`;
    const message = new Message(JSON.parse(text) as JsonObject, text);
    const end = endInAnswer(message, asking('tasks/get'));
    end?.reply?.insert(['result', 'content'], 'more', 'end');
    if (end?.reply !== undefined) end.report(end.reply);
    expect(message.text).toBe(text.replace('"content":[]', '"content":["more"]'));
  });

  it('that is postponed says nothing of the end', () => {
    const message = answer(DONE);
    endInAnswer(message, asking('tasks/get'))?.postpone();
    expect(message.value).toMatchObject({ id: 1, error: { code: -32603 } });
    expect(message.value).not.toHaveProperty('result');
  });
});

describe('a notification', () => {
  it('is an end with the status alone in SDK v1, and with a result in the extension', () => {
    const bare = { taskId: 't', status: 'completed' };
    expect(endInNotice(notice(STATUS, bare))?.taskId).toBe('t');
    expect(endInNotice(notice('notifications/tasks', bare))).toBeUndefined();
    expect(endInNotice(notice('notifications/tasks', DONE))?.taskId).toBe('t');
    expect(endInNotice(notice('notifications/message', DONE))).toBeUndefined();
    expect(
      outcomeOf(endInNotice(notice(STATUS, { ...bare, status: 'failed' }))?.reply ?? answer({}))
        .kind,
    ).toBe('failed');
  });

  it('tells of a lost outcome as a failure, in words where it has no room for a result', () => {
    const lost = answer({ content: [{ type: 'text', text: 'lost' }], isError: true });
    const status = notice(STATUS, { taskId: 't', status: 'completed' });
    endInNotice(status)?.report(lost);
    expect(status.value.params).toEqual({ taskId: 't', status: 'failed', statusMessage: 'lost' });
    const whole = notice('notifications/tasks', { ...DONE });
    endInNotice(whole)?.report(lost);
    expect(whole.value.params).toEqual({ ...DONE, result: lost.value.result });
  });

  it('that is postponed shows the task as still at work', () => {
    const message = notice('notifications/tasks', { ...DONE });
    endInNotice(message)?.postpone();
    expect(message.value.params).toEqual({ taskId: 't', status: 'working' });
  });
});
