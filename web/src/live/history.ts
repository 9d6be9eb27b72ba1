/** The past that the page draws: what the router has kept, and the samples that came since. */
import { extend, type Past, type Sample } from "./sample.ts";

export class History {
  past: Past = { series: [], changes: [] };
  private newest: Sample | null = null;
  private asking: AbortController | null = null;
  /** What the answer may lack. */
  private since: Sample[] = [];

  /**
   * Replaces the past by an answer, and adds the samples that came since it was requested. Returns whether it
   * did; a later request ends an earlier one.
   */
  async fetch(ask: (signal: AbortSignal) => Promise<Past>): Promise<boolean> {
    this.asking?.abort();
    const asking = new AbortController();
    this.asking = asking;
    // A sample can be sent a moment before it is in the history.
    this.since = this.newest === null ? [] : [this.newest];
    try {
      const past = await ask(asking.signal);
      if (asking.signal.aborted) return false;
      for (const sample of this.since) extend(past, sample);
      this.past = past;
      return true;
    } catch (error) {
      if (asking.signal.aborted) return false;
      throw error;
    } finally {
      if (this.asking === asking) this.asking = null;
    }
  }

  /**
   * Forgets the newest sample, after a time without a connection: a history that is fetched now is later, even
   * if the clock of a router that was started again is behind.
   */
  forget(): void {
    this.newest = null;
  }

  add(sample: Sample): void {
    this.newest = sample;
    if (this.asking !== null) this.since.push(sample);
    extend(this.past, sample);
  }
}
