import { describe, expect, it } from 'vitest';
import { PageBytes, PageMemory, ToolHints } from '../../src/wire/pages.ts';

const text = (id: string, tools = '[]') => `{"result":{"tools":${tools}},"id":${id}}`;
const bytes = (value: string): Buffer => Buffer.from(value);
const shownOf = (memory: PageMemory, key: string, tools: string): string | undefined =>
  memory
    .recall(key, bytes(text('1', tools)), bytes('1'))
    ?.shown.with(bytes('1'))
    .toString();
const page = (id: string, tools?: string): PageBytes => {
  const parsed = PageBytes.of(text(id, tools));
  if (parsed === undefined) throw new Error('no page');
  return parsed;
};

describe('the bytes of a page', () => {
  it('are the same page with any id, where nothing else differs', () => {
    const known = page('1');
    expect(known.isIn(bytes(text('"seven"')), bytes('"seven"'))).toBe(true);
    expect(known.isIn(bytes(text('7')), bytes('8'))).toBe(false);
    expect(known.isIn(bytes(text('77')), bytes('7'))).toBe(false);
    expect(known.isIn(bytes(text('7', '[1]')), bytes('7'))).toBe(false);
    expect(known.isIn(bytes(text('7').replace('tools', 'fools')), bytes('7'))).toBe(false);
    expect(known.with(bytes('"ü"')).toString()).toBe(text('"ü"'));
  });

  it('have one id', () => {
    expect(PageBytes.of('{"result":{"id":1}}')).toBeUndefined();
    expect(PageBytes.of('{"id":1,"result":{},"i\\u0064":1}')).toBeUndefined();
  });
});

describe('the memory of pages', () => {
  const id = bytes('1');
  const shown = page('1', '["shown"]');

  it('keeps one outcome of a page for each key', () => {
    const memory = new PageMemory();
    memory.keep('a', { sent: page('1', '[10]'), shown, tools: 1 });
    expect(shownOf(memory, 'a', '[10]')).toBe(text('1', '["shown"]'));
    expect(memory.recall('b', bytes(text('1', '[10]')), id)).toBeUndefined();
    expect(memory.recall('a', bytes(text('1', '[20]')), id)).toBeUndefined();
  });

  it('is bounded in number and in bytes, and forgets the oldest first', () => {
    const memory = new PageMemory();
    for (let at = 0; at < 300; at++) memory.keep(`key ${at}`, { sent: page('1'), shown, tools: 1 });
    const isKnown = (key: string): boolean =>
      memory.recall(key, bytes(text('1')), id) !== undefined;
    expect([isKnown('key 0'), isKnown('key 43'), isKnown('key 44')]).toEqual([false, false, true]);
    const long = (at: number): string => `["${String(at).padEnd(7 * 1024 * 1024)}"]`;
    for (const at of [0, 1, 2]) memory.keep('long', { sent: page('1', long(at)), shown, tools: 1 });
    expect(memory.recall('long', bytes(text('1', long(2))), id)).toBeDefined();
    for (const at of [0, 1, 2])
      memory.keep(`long ${at}`, { sent: page('1', long(at)), shown, tools: 1 });
    const left = [0, 1, 2].map((at) => memory.recall(`long ${at}`, bytes(text('1', long(at))), id));
    expect(left.map((each) => each !== undefined)).toEqual([false, true, true]);
    expect(isKnown('key 299')).toBe(false);
    const huge = `["${' '.repeat(17 * 1024 * 1024)}"]`;
    memory.keep('huge', { sent: page('1', huge), shown, tools: 1 });
    expect(memory.recall('huge', bytes(text('1', huge)), id)).toBeUndefined();
    expect(memory.recall('long 2', bytes(text('1', long(2))), id)).toBeDefined();
  });
});

describe('the hints of tools', () => {
  it('get a new version only where a page changes one', () => {
    const hints = new ToolHints();
    const versions = new Set<number>();
    const note = (...tools: readonly unknown[]): number => {
      hints.note(tools);
      versions.add(hints.version);
      return hints.version;
    };
    const reads = { name: 'view', annotations: { readOnlyHint: true } };
    const known = note(reads, { name: 'pay' }, 'no tool');
    expect(note(reads)).toBe(known);
    expect(note({ name: 'pay', annotations: { title: 'Pay' } }, { annotations: {} })).toBe(known);
    note({ name: 'view' });
    expect(hints.isReadOnly('view')).toBe(false);
    note(reads);
    expect(hints.isReadOnly('view')).toBe(true);
    expect(versions.size).toBe(3);
  });
});
