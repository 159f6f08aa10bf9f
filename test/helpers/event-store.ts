import type {
  EventId,
  EventStore,
  StreamId,
} from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import type { JSONRPCMessage } from '@modelcontextprotocol/sdk/types.js';

/** Events in the order of their storage. The id of an event names its stream. */
export class ListEventStore implements EventStore {
  readonly #events: {
    readonly id: EventId;
    readonly stream: StreamId;
    readonly message: JSONRPCMessage;
  }[] = [];

  async storeEvent(stream: StreamId, message: JSONRPCMessage): Promise<EventId> {
    const id = `${stream}_${this.#events.length}`;
    this.#events.push({ id, stream, message });
    return id;
  }

  async getStreamIdForEventId(event: EventId): Promise<StreamId | undefined> {
    return this.#events.find(({ id }) => id === event)?.stream;
  }

  async replayEventsAfter(
    last: EventId,
    { send }: { send: (id: EventId, message: JSONRPCMessage) => Promise<void> },
  ): Promise<StreamId> {
    const at = this.#events.findIndex(({ id }) => id === last);
    const stream = this.#events[at]?.stream ?? '';
    for (const event of this.#events.slice(at + 1)) {
      if (event.stream === stream && Object.keys(event.message).length > 0)
        await send(event.id, event.message);
    }
    return stream;
  }
}
