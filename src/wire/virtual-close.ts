/** Who is told of a connection that closed. */
export interface CloseListeners {
  /** The client left, and the upstream must not know. */
  onDepart(): void;
  /** Everybody knows: once for each response. */
  onClose(): void;
  /** Emits the `close` that was withheld from the upstream. */
  emitClose(): void;
}

/**
 * Keeps a client's departure from the upstream, so that a step is carried to its end and its
 * outcome is seen. Only what was begun before the client left can be kept up.
 */
export class VirtualClose {
  readonly #listeners: CloseListeners;
  #withholds = false;
  #departed = false;
  #closed = false;

  constructor(listeners: CloseListeners) {
    this.#listeners = listeners;
  }

  /** The client left while its departure was to be withheld. */
  get departed(): boolean {
    return this.#departed;
  }

  /** Nobody is there to read any more. */
  get gone(): boolean {
    return this.#departed || this.#closed;
  }

  /** At this moment the upstream is kept from knowing. */
  get withheld(): boolean {
    return this.#departed && !this.#closed;
  }

  withhold(): void {
    this.#withholds = true;
  }

  /** Lets the upstream know of a departure, now or as soon as there is one. */
  release(): void {
    this.#withholds = false;
    if (!this.withheld) return;
    this.#closed = true;
    try {
      this.#listeners.emitClose();
    } finally {
      this.#listeners.onClose();
    }
  }

  /**
   * The connection closed. Returns whether to keep that from the upstream; a response that is
   * finished has nothing to keep.
   */
  connectionClosed(finished: boolean): boolean {
    if (this.#withholds && !this.gone && !finished) {
      this.#departed = true;
      this.#listeners.onDepart();
    }
    if (this.withheld) return true;
    if (!this.#closed) {
      this.#closed = true;
      this.#listeners.onClose();
    }
    return false;
  }
}
