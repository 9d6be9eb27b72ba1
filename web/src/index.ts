/** The page over all runs of a folder. */
import { CONTENT, picturesOf, spark } from "./charts/spark.ts";
import { type Child, h } from "./dom.ts";
import { megabits, milliseconds, percent, whole } from "./maths/format.ts";
import type { DelayOf, Index, IndexedScenario, IndexedVariant } from "./model.ts";
import { alike, count, enumerated, sentence, table, withCode } from "./page/parts.ts";
import { start } from "./start.ts";

/** With more scenarios than this, a list of them comes first. */
const MOST_UNLISTED = 3;
const NOTHING = "—";
const DELAYS: Record<DelayOf, string> = { pings: "Round trip", packets: "Delay in the queue" };

start<Index>((index) => [
  header(index),
  overall(index),
  index.scenarios.length > MOST_UNLISTED ? contents(index.scenarios) : null,
  ...index.scenarios.map(card),
  h(
    "footer",
    { class: "note" },
    `Written by ${index.generated_by}. Figures of repeated runs are medians over the runs.`,
  ),
]);

/** The numbers of expectations that were met and that were not. */
function outcomes(variants: IndexedVariant[]): { met: number; unmet: number } {
  return {
    met: variants.reduce((sum, variant) => sum + variant.expectations_met, 0),
    unmet: variants.reduce((sum, variant) => sum + variant.expectations_unmet.length, 0),
  };
}

function header({ scenarios }: Index): HTMLElement {
  const variants = scenarios.flatMap((scenario) => scenario.variants);
  const runs = variants.reduce((sum, variant) => sum + variant.runs, 0);
  const partial = variants.filter((variant) => variant.partial !== null).length;
  const { met, unmet } = outcomes(variants);
  return h(
    "header",
    {},
    h("h1", {}, "Which queue is best for what?"),
    h(
      "p",
      {},
      `${count(scenarios.length, "scenario")}, ${count(runs, "run")}. `,
      met + unmet === 0
        ? ""
        : unmet === 0
          ? h("b", { class: "met" }, `✓ All ${met} expectations were met. `)
          : h("b", { class: "failed" }, `✗ ${unmet} of ${met + unmet} expectations were not met. `),
      partial === 0
        ? ""
        : `The runs of ${count(partial, "variant")} ended early, or an error stopped their queue. `,
    ),
    h(
      "p",
      { class: "note" },
      "Each scenario sends the same traffic through several queues in front of a slow link. " +
        "A good queue uses the whole link (goodput) and keeps waiting times short (delay).",
    ),
  );
}

function overall({ overall }: Index): HTMLElement | null {
  if (overall.length === 0) return null;
  return h(
    "section",
    { class: "card", id: "overall" },
    h("h2", {}, "Over all scenarios"),
    h(
      "dl",
      { class: "verdicts" },
      ...overall.flatMap(({ algorithm, sentence }) => [
        h("dt", {}, h("code", {}, algorithm)),
        h("dd", {}, `${sentence}.`),
      ]),
    ),
  );
}

function anchor(scenario: IndexedScenario): string {
  return `scenario-${encodeURIComponent(scenario.path)}`;
}

function contents(scenarios: IndexedScenario[]): HTMLElement {
  return h(
    "nav",
    { class: "card" },
    h("h2", {}, "Scenarios"),
    h(
      "ol",
      {},
      ...scenarios.map((scenario) => {
        const { met, unmet } = outcomes(scenario.variants);
        const mark =
          unmet > 0 ? h("b", { class: "failed" }, " ✗") : met > 0 ? h("b", { class: "met" }, " ✓") : "";
        return h("li", {}, h("a", { href: `#${anchor(scenario)}` }, scenario.title), mark);
      }),
    ),
  );
}

function card(scenario: IndexedScenario): HTMLElement {
  const { path, title, about, link, variants } = scenario;
  const isMixed = new Set(variants.map((variant) => variant.backend)).size > 1;
  const name = ({ name, backend }: IndexedVariant): Child =>
    h("span", {}, h("code", {}, name), isMixed ? ` (${backend})` : "");
  const where = path === "" || path === title ? "" : h("small", {}, ` ${path}`);
  return h(
    "section",
    { class: "card scenario", id: anchor(scenario) },
    h("h2", {}, title, where),
    about === null ? null : h("p", {}, about),
    h(
      "ul",
      { class: "judgements" },
      // Queues with the same judgement share one sentence.
      ...alike(variants).map(([judgement, ...same]) =>
        h("li", {}, ...enumerated(same.map(name)), ": ", ...sentence(judgement)),
      ),
    ),
    figures(scenario, name),
    ...variants.flatMap((variant) =>
      variant.expectations_unmet.map((outcome) => h("p", { class: "failed" }, ...withCode(outcome))),
    ),
    link === null
      ? null
      : h(
          "p",
          {},
          h(
            "a",
            { href: link },
            variants.length === 1 ? "Report of the run" : "Report that compares all runs",
          ),
        ),
  );
}

function figures(
  { duration_s, variants }: IndexedScenario,
  name: (variant: IndexedVariant) => Child,
): HTMLElement {
  // Variants may be measured in different ways. Then each picture and delay names its own.
  const traces = variants.map(({ trace }) => trace);
  const kinds = picturesOf(traces, duration_s);
  const picture = ({ name, trace }: IndexedVariant): Child => {
    const kind = kinds.find(({ of }) => of === trace.of);
    if (kind === undefined) return "";
    const drawn = spark(trace, kind.decades, `${kind.title}: ${name}`);
    return kinds.length === 1 ? drawn : h("div", {}, drawn, h("small", {}, CONTENT[trace.of]));
  };
  const say = (value: number | null, show: (value: number) => string) =>
    value === null ? NOTHING : show(value);
  const first = variants[0]?.delay_of ?? "pings";
  const isAlike = variants.every(({ delay_of }) => delay_of === first);
  const delay = isAlike ? DELAYS[first] : "Delay";
  const delayed = (value: number | null, of: DelayOf): Child =>
    value === null || isAlike
      ? say(value, milliseconds)
      : h("div", {}, milliseconds(value), h("small", {}, DELAYS[of]));
  const rows = variants.map((variant): Child[] => [
    heading(variant, name),
    picture(variant),
    say(variant.goodput_mbps, megabits),
    say(variant.utilisation, percent),
    delayed(variant.delay_p50_ms, variant.delay_of),
    delayed(variant.delay_p95_ms, variant.delay_of),
    whole(variant.drops),
    whole(variant.marks),
    say(variant.jain, (jain) => jain.toFixed(2)),
    expected(variant),
  ]);
  const titles = h("div", {}, ...kinds.map(({ title }) => h("div", {}, title)));
  const head = ["Queue", titles, "Goodput", "Link used", `${delay}, median`, "95 % within", "Drops", "Marks"];
  return table([...head, "Jain's index", "Expectations"], rows);
}

function heading(variant: IndexedVariant, name: (variant: IndexedVariant) => Child): HTMLElement {
  const { link, partial, runs } = variant;
  return h(
    "span",
    {},
    link === null ? name(variant) : h("a", { href: link }, name(variant)),
    runs > 1 ? h("small", {}, count(runs, "run")) : null,
    partial === null ? null : h("small", { class: "failed" }, `partial: ${partial}`),
  );
}

function expected(variant: IndexedVariant): Child {
  const { met, unmet } = outcomes([variant]);
  if (met + unmet === 0) return "";
  return unmet === 0
    ? h("span", { class: "met" }, `✓ ${met} of ${met}`)
    : h("span", { class: "failed" }, `✗ ${met} of ${met + unmet}`);
}
