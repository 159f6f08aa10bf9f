import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, it } from 'vitest';
import { dynamodbDocuments, MAX_BYTES } from '../../examples/custom-store/dynamodb-documents.ts';
import { describeStateStore } from '../../packages/testing/src/index.ts';
import { documentStore } from '../../src/stores/document.ts';
import { dynamodbClient, makeDynamodbTable, startDynamodb } from '../services/dynamodb.ts';

let dynamodb: Awaited<ReturnType<typeof startDynamodb>>;
let client: ReturnType<typeof dynamodbClient>;

beforeAll(async () => {
  dynamodb = await startDynamodb();
  client = dynamodbClient(dynamodb.url);
});

afterAll(async () => {
  client.destroy();
  await dynamodb.stop();
});

describeStateStore(
  'documents in DynamoDB, as dynalite emulates it,',
  async () => {
    const table = `runs-${randomUUID()}`;
    await makeDynamodbTable(dynamodb.url, table);
    let time = Date.now();
    const options = { now: () => time, maxBytes: MAX_BYTES };
    const documents = dynamodbDocuments(client, table);
    const open = () => documentStore(documents, options);
    return {
      store: open(),
      documents,
      reopen: async () => open(),
      advance: (ms) => {
        time += ms;
      },
      close: async () => {},
    };
  },
  { describe, it, maxBytes: MAX_BYTES },
);
