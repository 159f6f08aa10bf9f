/**
 * Only the compiler checks this file. The line under each `@ts-expect-error` must not compile, and
 * all others must.
 */
import { detectOverlaps, PolicyEngine, stateSync } from '../../src/index.ts';

// Policies in a constant, whose directives TypeScript widens.
const policies = [
  { match: 'sprints.get', cacheControl: 'no-store' },
  { match: 'sprints.*', invalidates: ['sprints.*'] },
];
const defaults = { cacheControl: 'no-store' };
stateSync({ policies });
stateSync({ policies, defaults, onInvalidation: ({ patterns }) => void patterns.length });
const options = { policies, defaults };
stateSync(options);
new PolicyEngine(policies, defaults).resolve('sprints.get');
detectOverlaps(policies);
stateSync({ policies: [{ match: 'a' }] });
stateSync({ policies: [] });

// TypeScript checks the directives that it knows.
stateSync({ policies: [{ match: 'a', cacheControl: 'immutable' }], defaults: {} });
// @ts-expect-error
stateSync({ policies: [{ match: 'a', cacheControl: 'nostore' }] });
// @ts-expect-error
stateSync({ policies: [{ match: 'a' }], defaults: { cacheControl: 'nostore' } });
const misspelt = [{ match: 'a', cacheControl: 'nostore' }] as const;
// @ts-expect-error
stateSync({ policies: misspelt });
// @ts-expect-error
stateSync({ policies: [{ match: 'a', invalidate: ['a'] }] });
