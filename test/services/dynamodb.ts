import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { CreateTableCommand, DynamoDBClient, waitUntilTableExists } from '@aws-sdk/client-dynamodb';
import { DynamoDBDocument } from '@aws-sdk/lib-dynamodb';
import { documentsTable } from '../../examples/custom-store/dynamodb-documents.ts';
import { freePort } from './ports.ts';
import { type Service, startServer } from './server-process.ts';

const PROGRAM = fileURLToPath(new URL('../../node_modules/dynalite/cli.js', import.meta.url));

/**
 * Starts dynalite, which emulates DynamoDB in memory: its conditional writes are tested here, and
 * neither its replicas, its throttling nor its time to live.
 */
export async function startDynamodb(): Promise<Service> {
  const port = await freePort();
  const folder = await mkdtemp(join(tmpdir(), 'interlock-dynamodb-'));
  const url = `http://127.0.0.1:${port}`;
  const settings = { host: '127.0.0.1', port, createTableMs: 0 };
  return startServer(url, {
    command: process.execPath,
    args: [
      PROGRAM,
      ...Object.entries(settings).flatMap(([name, value]) => [`--${name}`, `${value}`]),
    ],
    folder,
    stopSignal: 'SIGTERM',
    abortSignal: 'SIGKILL',
    probe: () => fetch(url),
  });
}

/** @param requestTimeout in milliseconds; an app has less than its `storeDeadlineMs` */
export function dynamodbClient(endpoint: string, requestTimeout = 20_000): DynamoDBDocument {
  const client = new DynamoDBClient({
    endpoint,
    region: 'eu-west-1',
    credentials: { accessKeyId: 'none', secretAccessKey: 'none' },
    maxAttempts: 2,
    requestHandler: { requestTimeout, throwOnRequestTimeout: true },
  });
  return DynamoDBDocument.from(client);
}

export async function makeDynamodbTable(url: string, TableName: string): Promise<void> {
  const client = dynamodbClient(url);
  await client.send(new CreateTableCommand(documentsTable(TableName)));
  const patience = { client, maxWaitTime: 20, minDelay: 0.02, maxDelay: 0.1 };
  await waitUntilTableExists(patience, { TableName });
  client.destroy();
}
