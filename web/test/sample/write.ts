/** Writes dist/sample.json and dist/sample.html for the screenshot test and for looking at by eye. */
import { readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { embed } from "../../src/embed.ts";
import { sampleReport } from "./report.ts";

const dist = (name: string) => fileURLToPath(new URL(`../../dist/${name}`, import.meta.url));

const json = JSON.stringify(sampleReport(15));
const template = await readFile(dist("report.html"), "utf8");
const encoded = await embed(json);
const page = template.replace("{{title}}", () => "Sample").replace("{{report}}", () => encoded);
await writeFile(dist("sample.json"), json);
await writeFile(dist("sample.html"), page);
console.log(`dist/sample.html: ${Math.round(page.length / 1024)} KiB`);
