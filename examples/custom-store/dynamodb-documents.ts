import { createHash } from 'node:crypto';
import {
  ConditionalCheckFailedException,
  type CreateTableCommandInput,
} from '@aws-sdk/client-dynamodb';
import type { DynamoDBDocument } from '@aws-sdk/lib-dynamodb';
import type { IndexedDocuments } from 'mcp-interlock/stores/document';

/** The option `maxBytes`: an item has 400 kB at most, its keys and its revision included. */
export const MAX_BYTES = 390_000;

/**
 * Documents in one table of DynamoDB. An entry of the index is an item of its own: its partition is
 * the list, and its sort key has score, key and revision. So no two writes share an entry, and a
 * write that lost the race takes its own entries back.
 *
 * - DynamoDB gives no time, so the clocks of the processes count. A call is forwarded with at least
 *   half of its lease left, 4 s by default: by less than that may the clocks differ.
 * - Give the client a `requestTimeout` below `storeDeadlineMs`. The SDK has none by itself.
 * - A list is one partition, which takes some 1,000 writes a second. A busier app has several
 *   workflows, or leaves `find` out.
 */
export function dynamodbDocuments(client: DynamoDBDocument, TableName: string): IndexedDocuments {
  const removeAll = (places: readonly Place[]) =>
    // An entry too many does no harm.
    Promise.allSettled(places.map((Key) => client.delete({ TableName, Key })));
  return {
    async read(key) {
      const Key = placeOfDocument(key);
      const { Item } = await client.get({ TableName, Key, ConsistentRead: true });
      return Item && { document: Item.body, revision: Item.revision };
    },

    async swap(key, expected, { document, revision: id, expiresAt, index }) {
      // DynamoDB removes an item within days of that second. A pinned run has no such attribute.
      const expiry = expiresAt === undefined ? {} : { expires: Math.ceil(expiresAt / 1000) };
      // It names the entries of the index, so the next write knows which ones are over.
      const revision = [id, ...index.map(({ list, score }) => `${list}/${score}`)].join(' ');
      const places = placesOf(key, revision);
      const added = index.map(({ list, label }, at) => {
        const Item = { ...places[at], labelled: labelled(list, label), ...expiry };
        return client.put({ TableName, Item });
      });
      await Promise.all(added);
      const condition = expected ? 'revision = :old' : 'attribute_not_exists(pk)';
      const written = client.put({
        ...{ TableName, Item: { ...placeOfDocument(key), body: document, revision, ...expiry } },
        // The SDK asks again where an answer was lost: then the document is there already.
        ConditionExpression: `${condition} OR revision = :new`,
        ExpressionAttributeValues: { ':new': revision, ...(expected && { ':old': expected }) },
      });
      const swapped = (await written.catch(refused)) !== undefined;
      await removeAll(swapped ? placesOf(key, expected) : places);
      return { swapped, revision };
    },

    async remove(key, expected) {
      const removed = client.delete({
        ...{ TableName, Key: placeOfDocument(key), ConditionExpression: 'revision = :old' },
        ExpressionAttributeValues: { ':old': expected },
      });
      if ((await removed.catch(refused)) === undefined) return false;
      await removeAll(placesOf(key, expected));
      return true;
    },

    async find({ list, label, upTo, after, limit }) {
      const from = after === undefined ? '0' : `${ordered(after.score)}${after.key}!`;
      const to = upTo < 0 ? '' : `${ordered(upTo)}~`;
      if (from > to) return [];
      const [attribute, value, IndexName] =
        label === undefined ? ['pk', list] : ['labelled', labelled(list, label), 'labels'];
      const { Items = [] } = await client.query({
        ...{ TableName, IndexName, Limit: limit },
        KeyConditionExpression: `${attribute} = :value AND sk BETWEEN :from AND :to`,
        ExpressionAttributeValues: { ':value': value, ':from': from, ':to': to },
      });
      const places = Items.map(({ sk }) => [sk.slice(0, 16), ...sk.slice(16).split(' ')]);
      return places.map(([score, key]) => ({ score: Number(score), key }));
    },
  };
}

const placeOfDocument = (key: string) => ({ pk: key, sk: 'document' });
type Place = ReturnType<typeof placeOfDocument>;

/** The places of a revision's entries. */
function placesOf(key: string, revision = ''): Place[] {
  const [id, ...entries] = revision.split(' ');
  const parts = entries.map((entry) => entry.split('/'));
  return parts.map(([pk = '', score]) => ({ pk, sk: `${ordered(Number(score))}${key} ${id}` }));
}

/** DynamoDB orders texts by their bytes. */
const ordered = (score: number) => String(score).padStart(16, '0');

/** A label may be longer than a key of DynamoDB, hence its digest. */
const labelled = (list: string, label: string) =>
  `${list}/${createHash('sha256').update(label).digest('base64url')}`;

/** The condition did not hold. All else that fails rejects: then the write may be done, or not. */
const refused = (error: unknown) => {
  if (!(error instanceof ConditionalCheckFailedException)) throw error;
};

/** The table. Say beside it that `expires` is its time to live: `UpdateTimeToLive`. */
export function documentsTable(TableName: string): CreateTableCommandInput {
  return {
    TableName,
    BillingMode: 'PAY_PER_REQUEST',
    AttributeDefinitions: ['pk', 'sk', 'labelled'].map((AttributeName) => {
      return { AttributeName, AttributeType: 'S' };
    }),
    KeySchema: [
      { AttributeName: 'pk', KeyType: 'HASH' },
      { AttributeName: 'sk', KeyType: 'RANGE' },
    ],
    GlobalSecondaryIndexes: [
      {
        IndexName: 'labels',
        KeySchema: [
          { AttributeName: 'labelled', KeyType: 'HASH' },
          { AttributeName: 'sk', KeyType: 'RANGE' },
        ],
        Projection: { ProjectionType: 'KEYS_ONLY' },
      },
    ],
  };
}
