// Opens the page of a real live run in headless Chromium: `sluice run --http` with a token. The charts of
// the run must be drawn, and a page without the token, a page of another site, and a foreign name for
// the same address (DNS rebinding) must get no figures.
//
//   node test/served.mjs SLUICE [--out DIR]
//
// Needs Chromium (`apt-get install chromium`, or its path in CHROMIUM), and permission to make namespaces.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";

const { values, positionals } = parseArgs({ options: { out: { type: "string" } }, allowPositionals: true });
const [sluice] = positionals;
if (sluice === undefined) throw new Error("name the command: node test/served.mjs SLUICE");
const out = resolve(values.out ?? fileURLToPath(new URL("../../artifacts", import.meta.url)));
const browserPath = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser"].find(
  (path) => path !== undefined && existsSync(path),
);
const failures = [];
const check = (holds, sentence) => {
  if (!holds) failures.push(sentence);
};

// A slow disk or a busy machine makes nothing wrong.
const PATIENCE = 180_000;
const TOKEN = "0123456789abcdef";
// Longer than the test needs; it ends the run.
const SCENARIO = `
duration = "120s"
backend = "live"
[link]
rate = "10Mbit/s"
rtt = "20ms"
queue = "fq_codel"
[[flow]]
type = "tcp"
name = "bulk"
count = 2
`;

const folder = await mkdtemp(join(tmpdir(), "served-"));
await writeFile(join(folder, "served.toml"), SCENARIO);
await writeFile(join(folder, "token"), `${TOKEN}\n`, { mode: 0o600 });
const words = [
  "run",
  "served.toml",
  "--quiet",
  "-o",
  "out",
  "--http",
  "127.0.0.1:0",
  "--http-token",
  "token",
];
const run = spawn(resolve(sluice), words, { cwd: folder, stdio: ["ignore", "ignore", "pipe"] });
const ended = new Promise((done) => run.on("exit", done));
const lines = createInterface({ input: run.stderr });
const address = await new Promise((done, fail) => {
  lines.on("line", (line) => {
    const found = /progress at (http:\S+)/.exec(line);
    if (found !== null) done(found[1]);
  });
  void ended.then((code) => fail(new Error(`sluice ended with ${code}`)));
});
const port = new URL(address).port;

// A page of another site.
const other = createServer((_, response) => response.end("<!doctype html><title>other</title>"));
await new Promise((done) => other.listen(0, "127.0.0.1", done));

await mkdir(out, { recursive: true });
const browser = await chromium.launch({
  executablePath: browserPath,
  timeout: PATIENCE,
  args: ["--no-sandbox", "--host-resolver-rules=MAP evil.example 127.0.0.1"],
});
try {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  context.setDefaultTimeout(PATIENCE);
  const page = await context.newPage();
  page.on("pageerror", (error) => failures.push(`exception: ${error.message}`));
  await page.goto(`${address}#token=${TOKEN}`);
  await page.waitForFunction(() => Number(document.getElementById("page").dataset.number) >= 3);
  const charts = await page.$$eval("figure.chart:not(.empty)", (all) => all.map((one) => one.dataset.chart));
  check(charts.join() === "rate,sojourn,backlog,drops,state", `charts ${charts}`);
  const text = await page.textContent("#page");
  for (const word of ["of 120 s", "pipe 2", "up: fq_codel", "Busiest flows", "h2"]) {
    check(text.includes(word), `no "${word}"`);
  }
  await page.screenshot({ path: `${out}/served.png`, fullPage: true });

  // The cookie of this browser does not help another site, nor does a foreign name for the address.
  const foreign = await context.newPage();
  await foreign.goto(`http://127.0.0.1:${other.address().port}/`);
  for (const [path, options] of [
    ["state", { credentials: "include" }],
    ["metrics", { credentials: "include", mode: "no-cors" }],
    ["command", { method: "POST", credentials: "include", mode: "no-cors", body: "pipe 1 config" }],
  ]) {
    const got = await foreign.evaluate(
      ([url, how]) =>
        fetch(url, how).then(
          (answer) => answer.text(),
          () => "",
        ),
      [address + path, options],
    );
    check(got === "", `another site reads /${path}: ${got.slice(0, 40)}`);
  }
  const rebound = await context.newPage();
  const answer = await rebound.goto(`http://evil.example:${port}/state`);
  check(answer.status() === 403, `a foreign name gets ${answer.status()}`);
  const stranger = await (await browser.newContext()).newPage();
  stranger.setDefaultTimeout(PATIENCE);
  await stranger.goto(address);
  await stranger.waitForSelector('#page[data-state="failed"]');
  const said = await stranger.textContent("#page");
  check(said.includes("a token is required"), `without a token the page says "${said}"`);

  run.kill("SIGINT");
  // The page is served until it has seen that no run is left.
  await page.waitForFunction(() => document.body.textContent.includes("The runs have ended."));
} finally {
  await browser.close();
  run.kill("SIGINT");
  await ended;
  other.close();
  await rm(folder, { recursive: true });
}
if (failures.length > 0) {
  for (const failure of failures) console.error(`served: ${failure}`);
  process.exit(1);
}
console.log(`served: ok, screenshot in ${out}`);
