import type { Fact, Run } from "../model.ts";

export interface SplitFacts {
  /** Facts that are the same in all runs. */
  common: Fact[];
  /** Facts that differ, with one value per run; `null` if a run does not state it. */
  differing: { label: string; values: (string | null)[] }[];
}

/** Separates the facts that all runs share from those that differ, in order of first mention. */
export function splitFacts(runs: Run[]): SplitFacts {
  const labels = [...new Set(runs.flatMap((run) => run.facts.map((fact) => fact.label)))];
  const split: SplitFacts = { common: [], differing: [] };
  for (const label of labels) {
    const values = runs.map((run) => run.facts.find((fact) => fact.label === label)?.value ?? null);
    const first = values[0] ?? null;
    if (first !== null && values.every((value) => value === first))
      split.common.push({ label, value: first });
    else split.differing.push({ label, values });
  }
  return split;
}
