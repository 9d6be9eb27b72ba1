/** The top of the page: the scenario, the results in plain words, and the accuracy of the emulation. */
import { type Child, h, swatch } from "../dom.ts";
import { splitFacts } from "../maths/facts.ts";
import { enumerate, instant, percent, plain, whole } from "../maths/format.ts";
import { describe, packetsOf } from "../maths/verdict.ts";
import type { Report, Run } from "../model.ts";
import { dashes, variantVariable } from "../theme.ts";
import { linkTo } from "./links.ts";
import { alike, count, sentence, table } from "./parts.ts";
import { outcome, repetitionNote } from "./words.ts";

/** Beyond these limits, the inaccuracy of the emulation shows in the figures: 0.1 % of the rate, 1 ms late. */
const RATE_ERROR_LIMIT = 0.001;
const LATENESS_LIMIT_US = 1000;

export function variantName(run: Run): HTMLElement {
  const { look } = run;
  return h("span", { class: "variant" }, swatch(variantVariable(look), dashes(look)), run.name);
}

export function header(report: Report): HTMLElement {
  const backends = [...new Set(report.runs.map((run) => run.backend))];
  const where = backends.map((backend) => (backend === "sim" ? "simulated" : "live")).join(" and ");
  return h(
    "header",
    {},
    h("h1", {}, report.title),
    h(
      "p",
      { class: "note" },
      `${count(report.runs.length, "run")}, ${where}. ${repetitionNote(report.runs)} Written by ${report.generated_by}.`,
    ),
    ...repetitionLinks(report.runs.filter((run) => run.links.length > 0)),
    ...report.runs
      .filter((run) => run.partial !== null)
      .map((run) =>
        h(
          "p",
          { class: "banner", role: "alert" },
          h("strong", {}, `${run.name} is partial: ${run.partial}. `),
          `It ends at ${instant(run.duration_s)}, and its figures cover only the time until then.`,
        ),
      ),
    ...report.runs
      .filter((run) => run.stopped.length > 0)
      .map((run) =>
        h(
          "p",
          { class: "banner", role: "alert" },
          h("strong", {}, `The figures of ${run.name} are not those of its queue. `),
          `${run.stopped.join(". ")}.`,
        ),
      ),
  );
}

/** Links to the pages of the single repetitions; of many runs, they are folded away. */
function repetitionLinks(runs: Run[]): HTMLElement[] {
  const links = (run: Run) => run.links.flatMap(({ seed, link }) => [" ", h("a", { href: link }, `${seed}`)]);
  const lines = runs.map((run) =>
    h("p", { class: "note" }, `Single repetitions of ${run.name}, by seed:`, ...links(run)),
  );
  if (lines.length <= MOST_LINES) return lines;
  const summary = h("summary", {}, `Single repetitions of ${lines.length} runs, by seed`);
  return [h("details", { class: "note" }, summary, ...lines)];
}

/** With more lines than this, the page would not begin with its results. */
const MOST_LINES = 6;

export function verdicts(report: Report): HTMLElement {
  const { overall, perRun } = describe(report.runs);
  const best = alike(report.runs).filter(([{ is_best }]) => is_best);
  return h(
    "section",
    { class: "card", id: "verdict" },
    h("h2", {}, "In short"),
    ...best.map(([judgement, ...runs]) =>
      h(
        "p",
        { class: "best" },
        h("b", {}, enumerate(runs.map((run) => run.name))),
        ": ",
        ...sentence(judgement),
      ),
    ),
    ...overall.map((line) => h("p", {}, line)),
    h(
      "dl",
      { class: "verdicts" },
      ...report.runs.flatMap((run, index) => [
        h("dt", {}, variantName(run)),
        h("dd", {}, perRun[index] ?? ""),
      ]),
    ),
  );
}

/** The expectations, those not met first, each with a link to the chart that shows its figure. */
export function expectations(report: Report): HTMLElement | null {
  const all = report.runs.flatMap((run) => run.expectations.map((expectation) => ({ run, expectation })));
  if (all.length === 0) return null;
  const failed = all.filter(({ expectation }) => !expectation.passed);
  const row = ({ run, expectation }: (typeof all)[number]): Child[] => {
    const { metric, measured, bounds, passed, chart } = expectation;
    return [
      passed ? "met" : h("strong", { class: "failed" }, "not met"),
      variantName(run),
      h("code", {}, metric),
      measured ?? "not measured",
      bounds,
      linkTo(chart, undefined, "show"),
    ];
  };
  const head = ["", "Run", "Figure", "Measured", "Expected", ""];
  const rest = all.filter(({ expectation }) => expectation.passed);
  return h(
    "section",
    { class: failed.length > 0 ? "card doubtful" : "card", id: "expectations" },
    h("h2", {}, "Expectations"),
    h("p", { class: failed.length > 0 ? "doubt" : "" }, outcome(failed.length, all.length)),
    failed.length > 0 ? table(head, failed.map(row)) : null,
    rest.length > 0
      ? h(
          "details",
          {},
          h("summary", {}, `Expectations that were met (${rest.length})`),
          table(head, rest.map(row)),
        )
      : null,
  );
}

export function scenario(report: Report): HTMLElement {
  const { common, differing } = splitFacts(report.runs);
  const differences =
    differing.length === 0
      ? null
      : table(
          ["", ...report.runs.map((run) => variantName(run))],
          differing.map(({ label, values }) => [label, ...values.map((value) => value ?? "—")]),
        );
  return h(
    "section",
    { class: "card", id: "scenario" },
    h("h2", {}, "Scenario"),
    h(
      "dl",
      { class: "facts" },
      ...common.map(({ label, value }) => h("div", {}, h("dt", {}, label), h("dd", {}, value))),
    ),
    differences,
  );
}

export function accuracy(report: Report): HTMLElement {
  const doubts = report.runs.flatMap(doubtsOf);
  if (doubts.length === 0 && report.runs.every((run) => run.backend === "sim")) {
    return h(
      "section",
      { class: "card", id: "accuracy" },
      h("h2", {}, "Accuracy of the emulation itself"),
      h("p", {}, "Simulated: in virtual time, no packet is late, and none is lost outside the queues."),
    );
  }
  return h(
    "section",
    { class: doubts.length > 0 ? "card doubtful" : "card", id: "accuracy" },
    h("h2", {}, "Accuracy of the emulation itself"),
    table(
      ["", "Rate error", "Lateness, p50 · p99 · max", "Lost outside the queues"],
      report.runs.map((run) => [variantName(run), rateError(run), lateness(run), lost(run)]),
    ),
    ...doubts.map((doubt) => h("p", { class: "doubt" }, doubt)),
    ...report.runs.flatMap((run) =>
      run.accuracy.notes.map((note) => h("p", { class: "note" }, `${run.name}: ${note}`)),
    ),
  );
}

function rateError(run: Run): string {
  const error = run.accuracy.rate_error;
  return error === null ? "not measured" : `${error > 0 ? "+" : ""}${percent(error)}`;
}

function lateness(run: Run): string {
  const late = run.accuracy.release_lateness_us;
  if (late === null) return run.backend === "sim" ? "none: virtual time" : "not measured";
  return `${plain(late.p50)} · ${plain(late.p99)} · ${plain(late.max)} µs`;
}

function lost(run: Run): string {
  const counts = run.accuracy.lost_elsewhere.filter((count) => count.packets > 0);
  if (counts.length === 0) return "none";
  return counts.map((count) => `${whole(count.packets)} (${count.reason})`).join(", ");
}

/** Reasons to doubt the figures; empty if everything is within the limits. */
export function doubtsOf(run: Run): string[] {
  const doubts: string[] = [];
  const { rate_error, release_lateness_us, lost_elsewhere } = run.accuracy;
  if (rate_error !== null && Math.abs(rate_error) > RATE_ERROR_LIMIT) {
    doubts.push(`${run.name}: the rate of the link was off by more than ${RATE_ERROR_LIMIT * 100} %.`);
  }
  if (release_lateness_us !== null && release_lateness_us.p99 > LATENESS_LIMIT_US) {
    doubts.push(`${run.name}: 1 % of the packets left more than 1 ms late; the machine was too busy.`);
  }
  if (packetsOf(lost_elsewhere) > 0) {
    doubts.push(`${run.name}: packets were lost outside the queues.`);
  }
  return doubts;
}
