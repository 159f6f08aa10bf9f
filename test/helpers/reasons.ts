import { REASONS as WORDS } from '../../src/basics/reasons.ts';
import type { RefusalReason } from '../../src/index.ts';

/** Each reason that a refusal may give. */
export const REASONS = Object.keys(WORDS) as readonly RefusalReason[];
