import { describe, expect, it } from 'vitest';
import { LIBRARIES } from '../scripts/entries.ts';
import { type Import, importCycles, importsOf, sourceFiles } from './helpers/imports.ts';
import { Page } from './helpers/markdown.ts';

/**
 * Which rooms of `src/` a room may import, beside itself; the first ones of the list are nearest to
 * the user. A room is a folder; `index` are the two files at the top, which only name what is in
 * the rooms.
 */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  index: [
    ...['doors', 'follow', 'calls', 'gate', 'session', 'step', 'notify', 'policy', 'workflow'],
    ...['stores', 'wire', 'basics'],
  ],
  runs: [...['doors', 'follow', 'gate', 'session', 'step', 'stores', 'workflow', 'basics']],
  doors: [
    ...['follow', 'gate', 'policy', 'session', 'step', 'notify', 'stores', 'workflow', 'wire'],
    'basics',
  ],
  follow: ['calls', 'gate', 'session', 'step', 'workflow', 'wire', 'basics'],
  calls: ['step', 'workflow', 'wire', 'basics'],
  gate: ['session', 'step', 'notify', 'workflow', 'wire', 'basics'],
  session: ['step', 'notify', 'wire', 'basics'],
  step: ['workflow', 'wire', 'basics'],
  bus: ['notify', 'basics'],
  notify: ['wire', 'basics'],
  otel: ['basics'],
  stores: ['workflow', 'basics'],
  workflow: ['basics'],
  policy: ['wire', 'basics'],
  wire: ['basics'],
  basics: [],
};

/**
 * Where the store's types may be named by those who are given a store, or its snapshots, and make
 * none.
 */
const MAY_NAME_THE_STORE = [
  ...['follow', 'calls', 'gate', 'session', 'step', 'notify', 'workflow'],
];

/** What a policy says of a tool is pure; only the part that tells the client knows of messages. */
const POLICY_ON_THE_WIRE = 'policy/sync-filter.ts';

/**
 * What the pure rooms may take from npm. `initFsmEngine()` only asks whether `xstate` can be
 * loaded.
 */
const PURE_PACKAGES: Readonly<Record<string, readonly string[]>> = {
  workflow: ['zod/mini', 'xstate'],
  policy: ['zod/mini'],
};

// Most files have 100 to 400 lines. A gate or a store is one thing, and splitting it would only make
// the reader jump. So this is far above them, and finds what has become two things.
const MOST_LINES = 700;
/**
 * A response is one state machine, and so is a step: its whole life stands in one file. The contract
 * of stores is one text.
 */
const LONGER: Readonly<Record<string, number>> = {
  'step/step.ts': 1_090,
  'wire/tap.ts': 900,
  'stores/store.ts': 800,
};
const architecture = new Page('ARCHITECTURE.md');
const files = sourceFiles();
const imports = [...files].flatMap(([path, text]) => importsOf(path, text));

describe('the structure of src/', () => {
  it('lets imports run one way, from the middlewares down to the basics', () => {
    expect(imports.filter(({ isOurs }) => isOurs).filter((each) => !isAllowed(each))).toEqual([]);
  });

  it('has no import cycles', () => {
    expect(importCycles(imports)).toEqual([]);
  });

  it('exports no two types of one name', () => {
    const types = [...files.values()].flatMap((text) =>
      [...text.matchAll(/^export (?:interface|type|(?:abstract )?class) (\w+)/gm)].map(
        ([, name]) => name,
      ),
    );
    expect(types.length).toBeGreaterThan(300);
    expect(types.filter((name, at) => types.indexOf(name) !== at)).toEqual([]);
  });

  it('names no ninth type after calls: a message is a `Call`, and what comes of it has another name', () => {
    const declared = [...files.values()].flatMap((text) =>
      [...text.matchAll(/^(?:export )?(?:interface|type|(?:abstract )?class) (\w+)/gm)].map(
        ([, name]) => name ?? '',
      ),
    );
    expect(declared.filter((name) => /Calls?(?![a-z])/.test(name)).sort()).toEqual([
      'Call',
      'CallNote',
      'CallRecorder',
      'ClaimedCall',
      'FailedCall',
      'GuardedCall',
      'RecordCallsOptions',
      'SucceededCall',
    ]);
  });

  it('keeps I/O, Express and drivers out of the workflow and the policies', () => {
    const isForeign = ({ from, to, isOurs }: Import) =>
      !isOurs && PURE_PACKAGES[roomOf(from)]?.includes(to) === false;
    expect(imports.filter(isForeign)).toEqual([]);
  });

  it('imports no driver and no framework anywhere: their owners hand them in', () => {
    const packages = imports.filter(({ isOurs }) => !isOurs).map(({ to }) => to);
    const names = packages.filter((name) => !name.startsWith('node:'));
    expect([...new Set(names)].sort()).toEqual(['@opentelemetry/api', 'xstate', 'zod/mini']);
  });

  it('makes a context for asynchronous code in the one entry that is imported for it', () => {
    const made = imports.filter(({ to }) => /^(node:)?async_hooks$/.test(to));
    expect(made.map(({ from }) => from)).toEqual(['doors/ambient.ts']);
    expect(imports.filter(({ to }) => to === 'doors/ambient.ts')).toEqual([]);
  });

  it('is told room by room in ARCHITECTURE.md, with what each room may import', () => {
    const folders = [...files.keys()].filter((path) => path.includes('/')).map(roomOf);
    const told = new Map(roomsTold().map(({ room, imports }) => [room, imports]));
    expect([...told.keys()].sort()).toEqual([...new Set(folders)].sort());
    for (const [room, imports] of told) expect([room, imports]).toEqual([room, namesOf(room)]);
  });

  it('is drawn in ARCHITECTURE.md', () => {
    expect(architecture.blocks('mermaid')[0]).toBe(pictureOfTheHouse());
  });

  it('has each file and method of the way of a step in ARCHITECTURE.md', () => {
    const way = architecture.tableAfter('## The way of a step');
    expect(way.length).toBeGreaterThan(10);
    for (const [, file = '', methods = ''] of way) {
      const text = files.get(file.replace('src/', '')) ?? '';
      const declared = methods
        .replaceAll('`', '')
        .split(', ')
        .filter((name) => {
          return new RegExp(`^(export )?( {2})?(async |function )*${name}[(<]`, 'm').test(text);
        });
      expect([file, declared.join(', ')]).toEqual([file, methods.replaceAll('`', '')]);
    }
  });

  it('builds no schema while it is imported: an app would wait for each of them', () => {
    const eager = [...files].flatMap(([path, text]) =>
      text
        .split(/^(?=\S)/m)
        .filter(
          (statement) =>
            /^(export )?const /.test(statement) && !/= lazily|= lazyOptions/.test(statement),
        )
        .filter((statement) => /\bz\.\w+\(|\b\w+Option\(|\boptionalFunction\b/.test(statement))
        .map((statement) => `${path}: ${statement.split('\n')[0]}`),
    );
    expect(eager).toEqual([]);
  });

  it('has no file that needs a second look to be taken in', () => {
    const long = [...files].filter(
      ([path, text]) => text.split('\n').length - 1 > (LONGER[path] ?? MOST_LINES),
    );
    expect(long.map(([path]) => path)).toEqual([]);
  });

  it('does not leave the type system', () => {
    expect([...files].filter(([, text]) => leavesTypes(text)).map(([path]) => path)).toEqual([]);
  });
});

/** What the packages publish, as our own programs import it. */
const PUBLISHED = LIBRARIES.flatMap(({ entries }) => entries.map(({ source }) => source));
const INTERNAL = 'src/internal.ts';

describe.each(LIBRARIES.filter(({ folder }) => folder !== ''))(
  'the package in $folder',
  ({ folder }) => {
    const taken = [...sourceFiles(`${folder}src`)].flatMap(([path, text]) =>
      importsOf(`${folder}src/${path}`, text),
    );

    it('takes of the middlewares only what they publish, and what stands in one file for it', () => {
      const outside = taken.filter(({ to, isOurs }) => isOurs && !to.startsWith(folder));
      expect(outside.filter(({ to }) => !PUBLISHED.includes(to))).toEqual([]);
      expect(outside.some(({ to }) => to === INTERNAL)).toBe(true);
    });

    it('has no import cycles, no long file, and does not leave the type system', () => {
      const texts = [...sourceFiles(`${folder}src`)];
      expect(importCycles(taken)).toEqual([]);
      expect(texts.filter(([, text]) => text.split('\n').length > MOST_LINES)).toEqual([]);
      expect(texts.filter(([, text]) => leavesTypes(text)).map(([path]) => path)).toEqual([]);
    });
  },
);

describe('the programs in lab/', () => {
  const programs = [...sourceFiles('lab')]
    .filter(([path]) => !path.startsWith('bench/'))
    .flatMap(([path, text]) => importsOf(`lab/${path}`, text));

  it('look at the package from outside: they import what it publishes, and nothing of its inside', () => {
    const ofSource = programs.filter(({ to }) => to.startsWith('src/'));
    const inside = ofSource.filter(({ to }) => !PUBLISHED.includes(to) || to === INTERNAL);
    expect(inside.map(({ from, to }) => `${from} → ${to}`)).toEqual([]);
    expect(ofSource.length).toBeGreaterThan(0);
  });

  it('take from the tests only their services and helpers', () => {
    const ofTests = programs.filter(({ to }) => to.startsWith('test/'));
    expect(ofTests.filter(({ to }) => !/^test\/(?:services|helpers)\//.test(to))).toEqual([]);
  });
});

describe('the checks of the structure', () => {
  const text = [
    "import { a } from './a.ts';",
    "import type { B } from '../wire/b.ts';",
    'export {',
    '  c,',
    "} from './c.ts';",
    "export * from 'zod';",
    "import 'node:fs';",
    "const d = import('xstate');",
  ].join('\n');

  it('see every form of import', () => {
    const found = importsOf('gate/x.ts', text).map(
      ({ to, typeOnly }) => `${to}${typeOnly ? ' (type)' : ''}`,
    );
    expect(found).toEqual([
      'gate/a.ts',
      'wire/b.ts (type)',
      'gate/c.ts',
      'zod',
      'node:fs',
      'xstate',
    ]);
  });

  it('tell allowed imports from others', () => {
    const allowed = (from: string, to: string, typeOnly = false) =>
      isAllowed({ from, to, isOurs: true, typeOnly });
    expect(allowed('gate/judge.ts', 'step/step.ts')).toBe(true);
    expect(allowed('workflow/gate.ts', 'stores/store.ts', true)).toBe(true);
    expect(allowed('workflow/gate.ts', 'stores/store.ts')).toBe(false);
    expect(allowed('workflow/gate.ts', 'stores/memory.ts', true)).toBe(false);
    expect(allowed('policy/engine.ts', 'stores/store.ts', true)).toBe(false);
    expect(allowed('policy/engine.ts', 'wire/sse.ts', true)).toBe(false);
    expect(allowed('policy/sync-filter.ts', 'wire/sse.ts', true)).toBe(true);
    expect(allowed('wire/sse.ts', 'step/step.ts', true)).toBe(false);
    expect(allowed('basics/errors.ts', 'wire/sse.ts')).toBe(false);
    expect(allowed('new-room/x.ts', 'basics/errors.ts')).toBe(false);
  });

  it('tell the type `any` from the word', () => {
    expect(
      leavesTypes("const a = 'any'; // any case\n/** any of: any */ list.any(b); company;"),
    ).toBe(false);
    expect(leavesTypes('const b = { any: [a] };\ninterface C { any?: string }')).toBe(false);
    expect(leavesTypes('const a: any = 1;')).toBe(true);
    expect(leavesTypes('const a = new Map<string, any>();')).toBe(true);
    expect(leavesTypes('// @ts-ignore\nconst a = 1;')).toBe(true);
  });

  it('find a cycle through several files', () => {
    const edge = (from: string, to: string) => ({ from, to, isOurs: true, typeOnly: false });
    const cycle = [
      edge('a.ts', 'b.ts'),
      edge('b.ts', 'c.ts'),
      edge('c.ts', 'b.ts'),
      edge('a.ts', 'c.ts'),
    ];
    expect(importCycles(cycle)).toEqual(['b.ts → c.ts → b.ts']);
    expect(importCycles(cycle.slice(0, 2))).toEqual([]);
  });
});

function isAllowed({ from, to, typeOnly }: Import): boolean {
  const [importing, imported] = [roomOf(from), roomOf(to)];
  if (importing === imported) return true;
  if (importing === 'policy' && imported === 'wire' && from !== POLICY_ON_THE_WIRE) return false;
  const namesTheStore =
    to === 'stores/store.ts' && typeOnly && MAY_NAME_THE_STORE.includes(importing);
  return namesTheStore || MAY_IMPORT[importing]?.includes(imported) === true;
}

interface Room {
  readonly room: string;
  /** What it hides, in a few words. */
  readonly job: string;
  readonly imports: readonly string[];
}

/** The folders in the table of ARCHITECTURE.md. */
function roomsTold(): Room[] {
  const rows = architecture.tableAfter('## The house');
  return rows.flatMap(([folder = '', hides = '', others = '']) => {
    const room = folder.split('/')[1] ?? '';
    return room === ''
      ? []
      : { room, job: hides.split(':')[0] ?? '', imports: others.split(', ').filter(Boolean) };
  });
}

/** What a room may import, in the words of the table. */
function namesOf(room: string): string[] {
  return [...(MAY_IMPORT[room] ?? [])];
}

/** The rooms as a Mermaid diagram: an arrow leads to each room that no other arrow leads to. */
function pictureOfTheHouse(): string {
  const jobs = roomsTold()
    .filter(({ room }) => room !== 'basics')
    .map(({ room, job }) => `  ${room}["<b>src/${room}/</b><br/>${job}"]\n`);
  const rooms = Object.keys(MAY_IMPORT).filter((room) => room !== 'index' && room !== 'basics');
  const arrows = rooms.flatMap((from) => nearestRooms(from).map((to) => `  ${from} --> ${to}\n`));
  return `flowchart TD\n${jobs.join('')}${arrows.join('')}`;
}

/** What a room may import, without what one of these may import itself. */
function nearestRooms(from: string): string[] {
  const others = (MAY_IMPORT[from] ?? []).filter((room) => room !== 'basics');
  return others.filter((to) => !others.some((between) => MAY_IMPORT[between]?.includes(to)));
}

function leavesTypes(text: string): boolean {
  const code = text.replace(/\/\*.*?\*\/|\/\/[^\n]*|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`/gs, '');
  return /(?<![.\w$])any\b(?!\??:)/.test(code) || /@ts-(ignore|expect-error|nocheck)/.test(text);
}

function roomOf(path: string): string {
  return path.includes('/') ? path.slice(0, path.indexOf('/')) : 'index';
}
