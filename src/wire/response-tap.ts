export type { Tap as ResponseTap } from './tap.ts';
