// What mcp-interlock-cli/proxy exports. `npm run api` renews this file.

export type McpProxy = (req: IncomingMessage, res: ServerResponse, next: (error?: unknown) => void) => void;

export interface McpProxyOptions {
    readonly onFault?: ((fault: string) => void) | undefined;
}

export function mcpProxy(target: string | URL, { onFault }?: McpProxyOptions): McpProxy;
