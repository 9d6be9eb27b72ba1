/** The form that changes pipes, queues and AQMs, if the router was started with --http-control. */
import { dropdown, h } from "../dom.ts";

/** The command of an object in parts; docs/watching.md explains them. */
interface ObjectCommand {
  name: string;
  rate: string | null;
  settings: string;
  algorithm: string;
}

export interface Form {
  is_allowed: boolean;
  undo: string | null;
  objects: ObjectCommand[];
  aqms: string[];
  schedulers: string[];
}

interface Changed {
  undo: string | null;
  reply: {
    stdout: string;
    warnings: { text: string }[];
    error?: { message: string; place: { line: number; column: number } };
  };
}

/** What the fields of the form say. */
export interface Fields {
  rate: string;
  algorithm: string;
  parameters: string;
}

/** Splits the algorithm of an object into its name and its parameters. */
export function fieldsOf(object: ObjectCommand): Fields {
  const words = object.algorithm.split(" ").filter((word) => word !== "" && word !== "type");
  return { rate: object.rate ?? "", algorithm: words[0] ?? "", parameters: words.slice(1).join(" ") };
}

/** Returns the command for an object with these fields. */
export function commandOf(object: ObjectCommand, fields: Fields): string {
  const isScheduler = object.name.startsWith("sched ");
  const parts = [
    object.name,
    "config",
    object.rate === null || fields.rate.trim() === "" ? "" : `bw ${fields.rate.trim()}`,
    // A scheduler's settings precede its type, which takes the rest of the line.
    object.settings,
    isScheduler ? "type" : "",
    fields.algorithm,
    fields.parameters.trim(),
  ];
  return parts.filter((part) => part !== "").join(" ");
}

/** What the fields are filled from: the object, and the algorithms that it may have. */
export function sourceOf(form: Form, name: string): string {
  return JSON.stringify([form.objects.find((object) => object.name === name), form.aqms, form.schedulers]);
}

export class Control {
  readonly element = h("section", { class: "card live-control", hidden: true, "aria-label": "Change" });
  private form: Form | null = null;
  private chosen = "";
  private filledFrom = "";
  private readonly result = h("p", { class: "note live-result", role: "status" });
  private readonly picker = h("div", {});
  private readonly rate = h("input", { type: "text", size: 12, spellcheck: "false" });
  private readonly rateLabel = h("label", {}, "Rate ", this.rate);
  private readonly algorithm = h("select", {});
  private readonly parameters = h("input", { type: "text", size: 24, spellcheck: "false" });
  private readonly command = h("textarea", { rows: 2, spellcheck: "false", "aria-label": "Command" });
  private readonly apply = h("button", { type: "button" }, "Apply");
  private readonly undo = h("button", { type: "button" }, "Undo");

  constructor() {
    for (const field of [this.rate, this.algorithm, this.parameters]) {
      field.addEventListener("input", () => this.compose());
    }
    this.algorithm.addEventListener("input", () => {
      this.parameters.value = "";
      this.compose();
    });
    this.apply.addEventListener("click", () => {
      void this.send("/command", { commands: this.command.value });
    });
    this.undo.addEventListener("click", () => {
      void this.send("/undo", {});
    });
    this.element.append(
      h("h2", {}, "Change"),
      h(
        "div",
        { class: "live-fields" },
        this.picker,
        this.rateLabel,
        h("label", {}, "Queue ", this.algorithm),
        h("label", {}, "Parameters ", this.parameters),
      ),
      this.command,
      h("div", { class: "live-fields" }, this.apply, this.undo),
      this.result,
    );
  }

  /** Fetches the objects again. */
  async load(): Promise<void> {
    const answer = await fetch("/control");
    if (!answer.ok) return;
    const form = (await answer.json()) as Form;
    this.element.hidden = !form.is_allowed;
    if (!form.is_allowed) return;
    this.form = form;
    this.showUndo(form.undo);
    const names = form.objects.map((object) => object.name);
    if (!names.includes(this.chosen)) this.chosen = names[0] ?? "";
    const options = names.map((name) => ({ value: name, text: name }));
    const select = dropdown("Object", options, this.chosen, (name) => {
      this.chosen = name;
      this.fill();
    });
    // A command that is being edited stays, and one that has been edited until its object changes.
    if (!this.element.contains(document.activeElement)) {
      this.picker.replaceChildren(select);
      if (sourceOf(form, this.chosen) !== this.filledFrom) this.fill();
    }
  }

  private object(): ObjectCommand | undefined {
    return this.form?.objects.find((object) => object.name === this.chosen);
  }

  private fill(): void {
    const object = this.object();
    if (object === undefined || this.form === null) return;
    this.filledFrom = sourceOf(this.form, this.chosen);
    const fields = fieldsOf(object);
    const all = object.name.startsWith("sched ") ? this.form.schedulers : this.form.aqms;
    const names = all.includes(fields.algorithm) ? all : [fields.algorithm, ...all];
    this.algorithm.replaceChildren(
      ...names.map((name) => h("option", { value: name, selected: name === fields.algorithm }, name)),
    );
    this.rateLabel.hidden = object.rate === null;
    this.rate.value = fields.rate;
    this.parameters.value = fields.parameters;
    this.compose();
  }

  private compose(): void {
    const object = this.object();
    if (object === undefined) return;
    const fields = {
      rate: this.rate.value,
      algorithm: this.algorithm.value,
      parameters: this.parameters.value,
    };
    this.command.value = commandOf(object, fields);
  }

  private showUndo(change: string | null): void {
    this.undo.disabled = change === null;
    this.undo.textContent = change === null ? "Undo" : `Undo ${change.split("\n")[0] ?? ""}`;
  }

  private async send(path: string, body: object): Promise<void> {
    this.apply.disabled = true;
    try {
      const answer = await fetch(path, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(body),
      });
      const isJson = answer.headers.get("Content-Type") === "application/json";
      if (!isJson) throw new Error(await answer.text());
      const { reply, undo } = (await answer.json()) as Changed;
      this.showUndo(undo);
      const error = reply.error;
      const where = error === undefined || error.place.column === 0 ? "" : ` (column ${error.place.column})`;
      const warnings = reply.warnings.map(({ text }) => `warning: ${text}`);
      const said =
        error === undefined ? [reply.stdout.trim(), "done"] : [`refused: ${error.message}${where}`];
      this.result.textContent = [...warnings, ...said].filter((text) => text !== "").join("\n");
      this.result.classList.toggle("banner", error !== undefined);
      if (error === undefined) {
        (document.activeElement as HTMLElement | null)?.blur();
        this.filledFrom = "";
        await this.load();
      }
    } catch (error) {
      this.result.textContent = error instanceof Error ? error.message : String(error);
      this.result.classList.add("banner");
    } finally {
      this.apply.disabled = false;
    }
  }
}
