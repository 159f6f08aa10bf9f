import { describe, expect, it } from 'vitest';
import type { TrailReplayFault } from '../packages/check/src/index.ts';
import type { TrailEntry, TrailFault } from '../src/stores/index.ts';
import { Page } from './helpers/markdown.ts';

/** The names of a type. The compiler asks for each of them. */
const namesOf = <Name extends string>(names: Record<Name, true>) => Object.keys(names).sort();

describe('docs/operate/trail.md', () => {
  const page = new Page('docs/operate/trail.md');
  const namesIn = (line: string) =>
    page
      .tableAfter(line)
      .flatMap(([names = '']) => names.replaceAll('`', '').split(', '))
      .sort();

  it('names each member of an entry', () => {
    const members = namesOf<keyof TrailEntry>({
      ...{ seq: true, version: true, attempt: true, at: true, from: true, to: true, event: true },
      ...{ outcome: true, kind: true, tool: true, digest: true, args: true, actor: true },
      ...{ requestId: true, calledBy: true, workflowVersion: true, payload: true, note: true },
      ...{ errors: true },
      ...{ previous: true, hash: true },
    });
    expect(namesIn('## What an entry says')).toEqual(members);
  });

  it('names each fault that is found', () => {
    const altered = namesOf<TrailFault['fault']>({
      ...{ altered: true, missing: true, order: true, unchained: true },
      ...{ foreign: true, cut: true },
    });
    const astray = namesOf<TrailReplayFault['fault']>({
      ...{ missing: true, from: true, state: true, event: true },
    });
    expect(namesIn('## Whether it was changed')).toEqual(altered);
    expect(namesIn('## Where it leads')).toEqual(astray);
  });
});
