import { bodies } from './bodies.ts';
import { differential } from './differential.ts';
import { guided } from './guided.ts';
import { handles } from './handles.ts';
import { listCache } from './list-cache.ts';
import { numbers } from './numbers.ts';
import { proxy } from './proxy.ts';
import { globs, snapshots } from './pure.ts';
import { rules } from './rules.ts';
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
  rules,
  handles,
  listCache,
  proxy,
  numbers,
  globs,
  snapshots,
];
