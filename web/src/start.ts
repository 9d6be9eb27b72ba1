/** Starts a page: reads the model inside it, draws, and shows an error instead if that fails. */
import { h } from "./dom.ts";
import { readEmbedded } from "./embed.ts";
import { watchTheme } from "./theme.ts";

export function start<T>(draw: (model: T) => (HTMLElement | null)[]): void {
  const page = document.getElementById("page");
  const embedded = document.getElementById("model")?.textContent ?? "";
  if (page === null) return;
  try {
    const model = readEmbedded(embedded) as T;
    watchTheme();
    page.replaceChildren(...draw(model).filter((section) => section !== null));
    page.dataset["state"] = "drawn";
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    page.replaceChildren(h("p", { class: "banner", role: "alert" }, `This page cannot be shown: ${why}`));
    page.dataset["state"] = "failed";
    throw error;
  }
}
