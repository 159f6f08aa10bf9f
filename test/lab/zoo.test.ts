import { beforeAll, describe, expect, it } from 'vitest';
import {
  differences,
  playZoo,
  type Row,
  recordedRows,
  tableOf,
  tableOfPage,
} from '../../lab/zoo/zoo.ts';

describe('the zoo of clients', () => {
  let played: readonly Row[];
  beforeAll(async () => {
    played = await playZoo();
  }, 300_000);

  it('ends as recorded: who pays, in how many calls, and what a stuck model read last', () => {
    expect(differences(played, recordedRows())).toEqual([]);
    expect(played.length).toBe(recordedRows().length);
  });

  it('brings each client to the till on each mount, or tells its operator the cure', () => {
    const nameOf = ({ client, era, mount, place }: Row) => [client, era, mount, place].join(', ');
    expect(played.filter(({ paid, told }) => !paid && !told).map(nameOf)).toEqual([]);
  });

  it('brings each client to the till on one mount at least, in each era that it speaks', () => {
    const nameOf = ({ client, era }: Row) => `${client}, ${era}`;
    const served = new Set(played.filter(({ paid }) => paid).map(nameOf));
    expect(played.map(nameOf).filter((name) => !served.has(name))).toEqual([]);
  });

  it('is the table of the docs', () => {
    expect(tableOfPage()).toBe(tableOf(recordedRows()));
  });

  it('names the play that ended otherwise, and how', () => {
    const [first, ...rest] = recordedRows() as [Row, ...Row[]];
    const other = { ...first, paid: false, calls: 1, stuck: 'it reads nothing.', told: true };
    expect(differences([other, ...rest], recordedRows())).toEqual([
      `${first.client}, ${first.era}, ${first.mount}, ${first.place}: ` +
        'stuck after 1: it reads nothing. The operator is told in try 1.; ' +
        'recorded: pays in 3 calls, in try 1',
    ]);
  });
});
