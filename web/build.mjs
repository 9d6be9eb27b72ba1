// Builds dist/report.html, dist/index.html and dist/live.html: each is one file with its script and
// style inside. The first two open from disk without a network; a router serves the third one. `crates/lab/src/report/html.rs` fills the two markers that are
// left, the title and the model.
//
// There are two scripts, because the index does not need the chart library, which is half of the
// report's script, and the report does not need the code of the index.
import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

const bundle = async (entry) => {
  const built = await build({
    entryPoints: [here(entry)],
    bundle: true,
    minify: true,
    write: false,
    format: "iife",
    target: ["chrome103", "firefox113", "safari16.4"],
    legalComments: "none",
    charset: "utf8",
  });
  return built.outputFiles[0].text.trimEnd();
};

/** Replaces a marker that must occur exactly once. A function does it, so that `$&` stays literal. */
const fill = (page, marker, text) => {
  if (page.split(marker).length !== 2) throw new Error(`src/page.html must hold ${marker} exactly once`);
  return page.replace(marker, () => text);
};

const shells = {
  index: await readFile(here("src/page.html"), "utf8"),
  live: await readFile(here("src/live.html"), "utf8"),
};
await mkdir(here("dist"), { recursive: true });
// The report is written last: `make` checks its time to determine whether both are up to date.
for (const name of ["index", "live", "report"]) {
  const script = (await bundle(`src/${name}.ts`)).replaceAll("</script", "<\\/script");
  const style = (await bundle(`src/${name}.css`)).replaceAll("</style", "<\\/style");
  const shell = name === "live" ? shells.live : shells.index;
  const page = fill(fill(shell, "/*style*/", style), "/*script*/", script);
  // The page of a router has no model inside: it asks the router.
  for (const marker of name === "live" ? [] : ["{{title}}", "{{model}}"]) fill(page, marker, "");
  await writeFile(here(`dist/${name}.html.part`), page);
  await rename(here(`dist/${name}.html.part`), here(`dist/${name}.html`));
  console.log(`dist/${name}.html: ${Math.round(page.length / 1024)} KiB`);
}
