import { beforeAll, describe, expect, it } from 'vitest';
import {
  differences,
  playZoo,
  type Row,
  recordedRows,
  tableOf,
  tableOfPage,
} from '../../tools/zoo/zoo.ts';

describe('the zoo of clients', () => {
  let played: readonly Row[];
  beforeAll(async () => {
    played = await playZoo();
  }, 180_000);

  it('ends as recorded: who pays, in how many calls, and what a stuck model read last', () => {
    expect(differences(played, recordedRows())).toEqual([]);
    expect(played.length).toBe(recordedRows().length);
  });

  it('brings each client to the till on some mount, or tells its operator the cure', () => {
    const nameOf = ({ client, era, place }: Row) => `${client}, ${era}, ${place}`;
    const served = new Set(played.filter(({ paid, told }) => paid || told).map(nameOf));
    const never = new Set(played.map(nameOf).filter((name) => !served.has(name)));
    expect([...never]).toEqual(UNSERVED);
  });

  it('is the table of the docs', () => {
    expect(tableOfPage()).toBe(tableOf(recordedRows()));
  });

  it('names the play that ended otherwise, and how', () => {
    const [first, ...rest] = recordedRows() as [Row, ...Row[]];
    const other = { ...first, paid: false, calls: 1, stuck: 'it reads nothing.', told: true };
    expect(differences([other, ...rest], recordedRows())).toEqual([
      `${first.client}, ${first.era}, ${first.mount}, ${first.place}: ` +
        'stuck after 1: it reads nothing. The operator is told.; recorded: pays in 3 calls',
    ]);
  });
});

const UNSERVED: readonly string[] = [];
