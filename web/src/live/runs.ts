/** The progress of runs: what `sluice run --http` shows above the charts of its live run. */
import { h } from "../dom.ts";

/** The live run that goes on. */
export interface LiveRun {
  number: number;
  name: string;
  elapsed_s: number;
  length_s: number;
}

interface Run {
  number: number;
  name: string;
  state: "waiting" | "running" | "done" | "failed";
  part: number;
  folder: string;
  has_report: boolean;
}

export interface RunsState {
  total: number;
  done: number;
  failed: number;
  /** Whether no run goes on or will begin. */
  is_over: boolean;
  left_s: number | null;
  live: LiveRun | null;
  runs: Run[];
}

/** Returns the progress of runs; null if the page is that of a router. */
export async function fetchRuns(): Promise<RunsState | null> {
  const answer = await fetch("/runs");
  if (!answer.ok) throw new Error(await answer.text());
  return (await answer.json()) as RunsState | null;
}

/** Returns a time in words, rounded up to whole seconds. */
export function duration(seconds: number): string {
  if (seconds < 90) return `${Math.ceil(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

/** Whether no run is left. */
export function isOver(state: RunsState): boolean {
  return state.is_over || state.done + state.failed === state.total;
}

/** Returns the state of a run in a word. */
export function stateWord({ state }: Pick<Run, "state">, isEnded: boolean): string {
  if (isEnded && state === "waiting") return "not run";
  return isEnded && state === "running" ? "stopped" : state;
}

/** Returns the progress of all runs in a sentence. */
export function summary(state: RunsState): string {
  const counts = `${state.done} of ${state.total} done, ${state.failed} failed`;
  if (isOver(state)) return counts;
  const left = state.left_s === null ? "the end is not known yet" : `about ${duration(state.left_s)} left`;
  return `${counts}, ${left}`;
}

/** Returns which run the charts show, `elapsed` seconds after its start. */
export function nowRunning(run: LiveRun, elapsed: number): string {
  const part = Math.min(Math.floor(elapsed), run.length_s);
  return `${run.name}: ${part} of ${run.length_s} s`;
}

export class Runs {
  private readonly sum = h("p", { class: "note", role: "status" });
  private readonly bar = h("progress", { class: "runs-bar", value: 0, max: 1, "aria-label": "All runs" });
  private readonly rows = h("tbody", {});
  private readonly known: { text: string; element: HTMLElement }[] = [];
  readonly element = h(
    "section",
    { class: "card", "aria-label": "Runs" },
    h("h1", {}, "Sluice runs"),
    this.sum,
    this.bar,
    h(
      "div",
      { class: "scroll runs-table", tabindex: "0", role: "region", "aria-label": "All runs" },
      h(
        "table",
        {},
        h(
          "thead",
          {},
          h("tr", {}, ...["run", "state", "part", "report"].map((text) => h("th", { scope: "col" }, text))),
        ),
        this.rows,
      ),
    ),
  );

  /** Shows the progress. Once the page is no longer served (`isEnded`), folders take the place of links. */
  show(state: RunsState, isEnded = false): void {
    this.sum.textContent = isEnded ? `${summary(state)}. The runs have ended.` : summary(state);
    this.bar.max = Math.max(state.total, 1);
    this.bar.value = state.runs.reduce((sum, run) => sum + run.part, 0);
    // A row that says the same stays, and with it the focus on its link.
    for (const [at, run] of state.runs.entries()) {
      const text = JSON.stringify([run, isEnded]);
      const known = this.known[at];
      if (known?.text === text) continue;
      const element = this.row(run, isEnded);
      if (known === undefined) this.rows.append(element);
      else known.element.replaceWith(element);
      this.known[at] = { text, element };
    }
    for (const { element } of this.known.splice(state.runs.length)) element.remove();
  }

  /** Shows a sentence instead of the counts. */
  say(text: string): void {
    this.sum.textContent = text;
  }

  private row(run: Run, isEnded: boolean): HTMLElement {
    // In a tab of its own: this page could not be opened again after the end.
    const link = { href: `/report/${run.number}`, target: "_blank", rel: "noopener" };
    const report =
      run.has_report && !isEnded ? h("a", link, "report") : run.state === "done" ? run.folder : "";
    return h(
      "tr",
      { class: `run-${run.state}` },
      h("th", { scope: "row" }, run.name),
      h("td", {}, stateWord(run, isEnded)),
      h("td", {}, `${Math.floor(run.part * 100)} %`),
      h("td", {}, report),
    );
  }
}
