import { bodies } from './bodies.ts';
import { differential } from './differential.ts';
import { guided } from './guided.ts';
import { globs, snapshots } from './pure.ts';
import { sessionsAround } from './sessions.ts';
import { streams } from './streams.ts';
import type { Target } from './target.ts';
import { uris } from './uris.ts';

/** What is fuzzed, in the order in which they take turns. */
export const TARGETS: readonly Target[] = [
  differential,
  guided,
  bodies,
  sessionsAround(),
  uris,
  streams,
  globs,
  snapshots,
];
