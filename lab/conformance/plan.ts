export const SERVERS = ['SDK v1', 'SDK v2'] as const;
export type ServerName = (typeof SERVERS)[number];

/** What a server is put to, and what it is known to come to without any middleware. */
export interface TestSet {
  readonly server: ServerName;
  /** A revision of the specification; the suite freezes which scenarios it requires. */
  readonly requirements: '2025-11-25' | '2026-07-28';
  /**
   * Fewer checks than these would mean that something was not tested, so that equal columns would
   * mean nothing.
   */
  readonly least: { readonly checks: number; readonly passed: number };
}

export const TEST_SETS: readonly TestSet[] = [
  { server: 'SDK v1', requirements: '2025-11-25', least: { checks: 91, passed: 84 } },
  { server: 'SDK v2', requirements: '2025-11-25', least: { checks: 91, passed: 84 } },
  // Its 30 failures are those of the tasks extension, which SDK v2 does not have.
  { server: 'SDK v2', requirements: '2026-07-28', least: { checks: 196, passed: 164 } },
];

export function nameOf({ server, requirements }: TestSet): string {
  return `${server}, ${requirements}`;
}
