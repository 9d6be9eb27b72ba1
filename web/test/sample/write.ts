/** Writes dist/sample.html, dist/sample-crowd.html and dist/sample-index.html, for the screenshot test and for viewing. */
import { readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { embed } from "../../src/embed.ts";
import { sampleCrowd } from "./crowd.ts";
import { sampleIndex } from "./index.ts";
import { sampleReport } from "./report.ts";

const dist = (name: string) => fileURLToPath(new URL(`../../dist/${name}`, import.meta.url));

async function write(name: string, page: string, model: unknown): Promise<void> {
  const template = await readFile(dist(page), "utf8");
  const encoded = embed(JSON.stringify(model));
  const filled = template.replace("{{title}}", () => "Sample").replace("{{model}}", () => encoded);
  await writeFile(dist(name), filled);
  console.log(`dist/${name}: ${Math.round(filled.length / 1024)} KiB`);
}

await write("sample.html", "report.html", sampleReport(15));
await write("sample-crowd.html", "report.html", sampleCrowd(15));
await write("sample-index.html", "index.html", sampleIndex(15));
