/**
 * One server process. Takes its settings as JSON, sends its port to its parent, and ends with it.
 */
import { startApp } from './app.ts';
import { brokenStore } from './broken-store.ts';
import type { ProcessSettings } from './server-process.ts';
import { openStore } from './stores.ts';

const settings: ProcessSettings = JSON.parse(process.argv[2] ?? '');
const { store } = await openStore(settings.store);
const app = await startApp(settings, settings.defect ? brokenStore(store, settings.defect) : store);
process.on('disconnect', () => process.exit());
process.send?.(app.port);
