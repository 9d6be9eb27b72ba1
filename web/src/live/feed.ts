/**
 * The samples as they come, while the page can be seen. A browser has at most six connections to a
 * server, and each page takes one: those in hidden tabs would keep others from loading.
 */
import type { Sample } from "./sample.ts";

export interface Listener {
  take(sample: Sample): void;
  /** The connection was lost; if it was refused, the browser does not try again. */
  lose(isRefused: boolean): void;
  /** The page can be seen again, and has missed samples. */
  back(): void;
}

/** `EventSource.CLOSED`. */
const CLOSED = 2;

export class Feed {
  private events: EventSource | null = null;

  constructor(
    private readonly listener: Listener,
    private readonly page: Pick<Document, "hidden" | "addEventListener" | "removeEventListener"> = document,
    private readonly connect = () => new EventSource("/events"),
  ) {
    page.addEventListener("visibilitychange", this.turn);
    this.open();
  }

  /** Connects, in place of an earlier connection, unless the page is hidden. */
  open(): void {
    this.events?.close();
    this.events = null;
    if (this.page.hidden) return;
    const events = this.connect();
    events.onmessage = (event: MessageEvent<string>) => this.listener.take(JSON.parse(event.data) as Sample);
    events.onerror = () => this.listener.lose(events.readyState === CLOSED);
    this.events = events;
  }

  close(): void {
    this.page.removeEventListener("visibilitychange", this.turn);
    this.events?.close();
    this.events = null;
  }

  /** Whether the connection was refused, so that only `open` tries again. */
  get isRefused(): boolean {
    return this.events?.readyState === CLOSED;
  }

  private readonly turn = (): void => {
    const isBack = !this.page.hidden && this.events === null;
    if (isBack) this.listener.back();
    if (isBack || this.page.hidden) this.open();
  };
}
