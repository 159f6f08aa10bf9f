// What mcp-interlock/otel exports. `npm run api` renews this file.

export interface CountedRuns {
    readonly workflow: string;
    readonly hearsBus?: boolean | undefined;
    count(): Promise<{
        readonly states: readonly {
            readonly state: string;
            readonly runs: number;
        }[];
        readonly held: number;
        readonly running: number;
        readonly unreadable: number;
    }>;
}

export interface InstrumentOptions {
    tracerProvider?: TracerProvider | undefined;
    meterProvider?: MeterProvider | undefined;
    runKeys?: boolean | undefined;
    runs?: readonly CountedRuns[] | undefined;
}

export interface Instrumentation {
    disable(): void;
}

export function countRuns(meter: Meter, counted: readonly CountedRuns[]): () => void;

export function instrument(options?: InstrumentOptions): Instrumentation;
