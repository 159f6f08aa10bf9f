/**
 * How a claim is let go, or something saved with it, of whose step nothing was forwarded: the key
 * of an earlier try waits for the next.
 */
export const UNBEGUN = { settles: false } as const;
