// What mcp-interlock/ambient exports. `npm run api` renews this file.
export { currentStep } from 'mcp-interlock';
