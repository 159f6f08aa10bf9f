import type { Json } from '../../src/stores/index.ts';
import { type Envelope, sealContext } from '../../src/workflow/envelope.ts';

/** The context that a gate of this version saves where a run carries these members. */
export function sealed(members: Envelope = {}): Json {
  return sealContext(members).context;
}
