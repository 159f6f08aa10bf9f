/** Only the compiler checks this file, as it does `workflow.types.ts`. */
import type { VisibilityOf } from '../../src/gate/visibility.ts';
import { fsmGate, type Visibility } from '../../src/index.ts';
import type { ClientInfo } from '../../src/stores/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';

const gate = checkoutGate();
fsmGate(gate, { visibility: 'hide' });
fsmGate(gate, { visibility: 'stable' });
fsmGate(gate, { visibility: 'auto' });
fsmGate(gate, { visibility: undefined, announce: undefined });
fsmGate(gate, { visibility: ({ name }) => (name === 'mcp' ? 'stable' : 'auto') });
fsmGate(gate, { visibility: ({ version }) => (version.startsWith('1.') ? 'stable' : 'hide') });
const words: readonly Visibility[] = ['hide', 'stable', 'auto'];
const byName: VisibilityOf = ({ name }: ClientInfo) => (name === '' ? 'hide' : 'auto');
fsmGate(gate, { visibility: byName });

// @ts-expect-error
fsmGate(gate, { visibility: 'show' });
// @ts-expect-error
fsmGate(gate, { visibility: words });
// @ts-expect-error
fsmGate(gate, { visibility: () => 'show' });
// @ts-expect-error
fsmGate(gate, { visibility: async () => 'stable' });
// @ts-expect-error
fsmGate(gate, { visibility: ({ title }) => (title === '' ? 'hide' : 'auto') });
