import { createParser } from 'eventsource-parser';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  formatEvent,
  parseSseEvent,
  type SseEvent,
  SseSplitter,
  withoutByteOrderMark,
} from '../../src/wire/sse.ts';

const lineEnd = fc.constantFrom('\n', '\r', '\r\n');
const text = fc.string({
  unit: fc.constantFrom('a', ' ', ':', '{', '"', 'é', '€', '💶', '\u2028', '\ufeff', 'data'),
  maxLength: 8,
});
const field = fc.oneof(
  { weight: 4, arbitrary: text.map((value) => `data: ${value}`) },
  fc.constantFrom(
    'data',
    'data:',
    'data:x',
    'event: message',
    'event:',
    'event: ping',
    'retry: 20',
    'id',
  ),
  fc.constantFrom('foo: bar', 'Data: no', ' data: no', ':', ': comment', 'data : no'),
  text.map((value) => `:${value}`),
);
/** At most one id: parsers disagree about a second one. */
const lines = fc
  .tuple(
    fc.option(fc.constantFrom('id: 7', 'id:', 'id: a\0b', 'id: é')),
    fc.array(field, { maxLength: 4 }),
  )
  .map(([id, fields]) => (id === null ? fields : [...fields, id]));
const block = fc
  .tuple(lines, fc.infiniteStream(lineEnd))
  .map(([fields, ends]) => [...fields, ''].map((line) => line + ends.next().value).join(''));

/** A stream with every kind of line end, cut anywhere, also inside of characters. */
const stream = fc
  .tuple(fc.boolean(), fc.array(block, { maxLength: 8 }))
  .map(([marked, blocks]) => Buffer.from(`${marked ? '\ufeff' : ''}${blocks.join('')}: end\n\n`));
const cut = fc
  .tuple(stream, fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 12 }))
  .map(([bytes, places]) => {
    const at = places.map((place) => Math.floor(place * bytes.length)).sort((a, b) => a - b);
    return [...at, bytes.length].map((end, index) => bytes.subarray(at[index - 1] ?? 0, end));
  });

function splitAll(chunks: readonly Buffer[]): { blocks: Buffer[]; rest: Buffer } {
  const splitter = new SseSplitter();
  const blocks = chunks.flatMap((chunk) => splitter.push(chunk));
  return { blocks, rest: splitter.rest() };
}

const readAll = (blocks: readonly Buffer[]): SseEvent[] =>
  blocks.map((bytes, index) =>
    parseSseEvent((index === 0 ? withoutByteOrderMark(bytes) : bytes).toString()),
  );

function oracle(bytes: Buffer): { data: string; type: string; hasId: boolean }[] {
  const events: { data: string; type: string; hasId: boolean }[] = [];
  const parser = createParser({
    onEvent: ({ data, event, id }) =>
      void events.push({ data, type: event || 'message', hasId: Boolean(id) }),
  });
  parser.feed(new TextDecoder().decode(bytes));
  return events;
}

describe('a stream of events that is cut anywhere', () => {
  it('comes out as the same bytes', () => {
    fc.assert(
      fc.property(cut, (chunks) => {
        const { blocks, rest } = splitAll(chunks);
        expect(Buffer.concat([...blocks, rest]).equals(Buffer.concat(chunks))).toBe(true);
      }),
    );
  });

  it('has the events that another parser finds in it', () => {
    fc.assert(
      fc.property(cut, (chunks) => {
        const found = readAll(splitAll(chunks).blocks).flatMap(({ data, type, hasId }) =>
          data === undefined ? [] : [{ data, type, hasId }],
        );
        expect(found).toEqual(oracle(Buffer.concat(chunks)));
      }),
    );
  });

  it('has the same events wherever it is cut', () => {
    fc.assert(
      fc.property(cut, (chunks) => {
        const events = (parts: readonly Buffer[]) =>
          readAll(splitAll(parts).blocks).filter(
            ({ otherLines, data }) => data !== undefined || otherLines.length > 0,
          );
        expect(events(chunks)).toEqual(events([Buffer.concat(chunks)]));
      }),
    );
  });

  it('counts the bytes that it holds, and copies them', () => {
    const splitter = new SseSplitter();
    const chunk = Buffer.from('data: {"a"');
    expect([splitter.push(chunk), splitter.bufferedBytes]).toEqual([[], 10]);
    chunk.fill('x');
    expect(splitter.push(Buffer.from(':1}\n\n')).map(String)).toEqual(['data: {"a":1}\n\n']);
    expect(splitter.bufferedBytes).toBe(0);
  });

  it('is cut in one pass, also where its lines end with CR alone', () => {
    const many = Buffer.from('data: x\r\r'.repeat(200_000));
    const started = process.cpuUsage().user;
    expect(new SseSplitter().push(many)).toHaveLength(200_000);
    // A search for LF from each line on would take minutes.
    expect(process.cpuUsage().user - started).toBeLessThan(5_000_000);
  });
});

describe('an event with new data', () => {
  it('keeps its id, its type, its retry time and its comments', () => {
    fc.assert(
      fc.property(lines, text, (given, data) => {
        const event = parseSseEvent(`${given.join('\n')}\n\n`);
        const again = parseSseEvent(formatEvent(data, event.otherLines));
        expect(again).toEqual({ ...event, data });
        expect(event.otherLines).toEqual(
          given.filter((line) => !/^data(:|$)/.test(line) && line !== ''),
        );
      }),
    );
  });

  it('may have data of several lines', () => {
    fc.assert(
      fc.property(fc.array(text), fc.infiniteStream(lineEnd), (pieces, ends) => {
        const data = pieces.reduce((all, piece) => all + ends.next().value + piece, 'x');
        expect(parseSseEvent(formatEvent(data)).data).toBe(data.replace(/\r\n|\r/g, '\n'));
      }),
    );
  });
});

describe('an id', () => {
  it.each([
    ['id: 1', true],
    ['id', false],
    ['id:', false],
    ['id: a\0b', false],
    ['id: 1\nid: a\0b', true],
    ['id: 1\nid:', false],
    ['id: 1\nid: 2', true],
  ])('in %j makes a stream resumable: %s', (given, hasId) => {
    expect(parseSseEvent(`${given}\ndata: x\n\n`).hasId).toBe(hasId);
  });
});
