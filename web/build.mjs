// Builds dist/report.html: one file with its script and style inside, that opens from disk
// without a network. The two placeholders it keeps (title and report) are filled by
// `crates/lab/src/report/html.rs`.
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

/** Replaces a marker that must be there exactly once; a function, so that `$&` in code stays code. */
const fill = (page, marker, text) => {
  if (page.split(marker).length !== 2) throw new Error(`src/report.html must hold ${marker} exactly once`);
  return page.replace(marker, () => text);
};

const script = (await bundle("src/main.ts")).replaceAll("</script", "<\\/script");
const style = (await bundle("src/style.css")).replaceAll("</style", "<\\/style");
let page = await readFile(here("src/report.html"), "utf8");
page = fill(page, "/*style*/", style);
page = fill(page, "/*script*/", script);
for (const marker of ["{{title}}", "{{report}}"]) fill(page, marker, "");

await mkdir(here("dist"), { recursive: true });
await writeFile(here("dist/report.html.part"), page);
await rename(here("dist/report.html.part"), here("dist/report.html"));
console.log(`dist/report.html: ${Math.round(page.length / 1024)} KiB`);
