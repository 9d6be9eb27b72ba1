// Opens the page of a router in headless Chromium, with a server that stands for the router, and keeps
// screenshots in artifacts/; docs/images/live.png is live-1280.png. The page must draw its charts and
// tables, follow new samples, mark a change, show foreign names as text, and fit into 390 pixels. Then
// the page of runs (runs-1280.png, which is docs/images/runs.png): it must list them, draw the charts of
// the live run that goes on, turn to the next one, and say when all have ended.
//
//   node test/live.mjs [--out DIR]
//
// Needs Chromium (`apt-get install chromium`), or its path in CHROMIUM.
import { existsSync } from "node:fs";
import { mkdir, readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";

const { values } = parseArgs({ options: { out: { type: "string" } } });
const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const out = resolve(values.out ?? here("../../artifacts"));
const browserPath = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser"].find(
  (path) => path !== undefined && existsSync(path),
);
const failures = [];
const check = (holds, sentence) => {
  if (!holds) failures.push(sentence);
};

// A slow disk or a busy machine makes nothing wrong.
const PATIENCE = 180_000;

// Plausible figures to look at; not a measurement. A pipe of 50 Mbit/s gets `fq_codel` 100 s ago. Nothing
// leaves it for half a minute before: its sojourn time has a gap.
const NOW = Date.UTC(2026, 0, 2, 12, 0, 0);
const CHANGED = NOW - 100_000;
const isStalled = (pipe, at) => pipe.name === "pipe 1" && at > NOW - 230_000 && at < NOW - 200_000;
const wave = (at, period, low, high) =>
  low + ((high - low) * (1 + Math.sin((at / 1000 / period) * 2 * Math.PI))) / 2;
const pipes = [
  { name: "pipe 1", link: 50e6, base: 48e6, words: "fq_codel target 5ms interval 100ms quantum 1514" },
  { name: "pipe 2", link: 10e6, base: 8e6, words: "droptail" },
  { name: "queue 10", link: 10e6, base: 3e6, words: "weight 5 droptail" },
];
// The state of CoDel; the next drop is not set while it does not drop.
const KINDS = { count: "count", drop_next: "instant", dropping: "flag" };
const stateAt = (at) => {
  const count = Math.max(0, Math.round(wave(at, 31, -4, 12)));
  return {
    count,
    dropping: count > 0 ? 1 : 0,
    ...(count > 0 ? { drop_next: 1e8 / Math.sqrt(count) } : {}),
  };
};
const column = (points, name) => ({
  kind: KINDS[name],
  values: points.map((p) => p.state[name] ?? null),
});
const point = (pipe, at) => {
  const isOld = pipe.name === "pipe 1" && at < CHANGED;
  if (isStalled(pipe, at)) {
    return { rate: 0, backlog: 400, p50: null, p99: null, dropped: 12, marked: 0, state: {} };
  }
  return {
    rate: wave(at, 40 + pipe.base / 1e6, pipe.base * 0.8, pipe.base),
    backlog: Math.round(wave(at, 13, 5, isOld ? 400 : 40)),
    p50: wave(at, 17, 2, isOld ? 180 : 6),
    p99: wave(at, 17, 6, isOld ? 260 : 14),
    dropped: Math.round(wave(at, 31, 0, isOld ? 60 : 8)),
    marked: pipe.name === "pipe 1" && !isOld ? 12 : 0,
    state: isOld || pipe.name !== "pipe 1" ? {} : stateAt(at),
  };
};
const changes = [{ unix_ms: CHANGED, by: "uid 0", text: "ipfw sched 1 config type fq_codel" }];
const history = () => ({
  series: [1_000, 10_000, 60_000].flatMap((step) =>
    pipes.map((pipe) => {
      const count = { 1000: 300, 10000: 360, 60000: 1440 }[step];
      const times = Array.from({ length: count }, (_, at) => NOW - (count - at) * step);
      const points = times.map((at) => point(pipe, at));
      return {
        name: pipe.name,
        step_ms: step,
        unix_ms: times,
        rate_bps: points.map((p) => p.rate),
        backlog_packets: points.map((p) => p.backlog),
        p50_ms: points.map((p) => p.p50),
        p99_ms: points.map((p) => p.p99),
        dropped: points.map((p) => p.dropped),
        dropped_for: { congestion: points.map((p) => p.dropped), overflow: points.map(() => 1) },
        marked: points.map((p) => p.marked),
        state: Object.fromEntries(
          pipe.name === "pipe 1" ? Object.keys(KINDS).map((name) => [name, column(points, name)]) : [],
        ),
      };
    }),
  ),
  changes,
});
// What stands for `sluice run --http`; null for a router.
const names = (live) => ["fifo", "codel", live === 1 ? "fq_codel" : "<b>fq</b>", "pie"];
let runs = null;
// Whether requests for the progress fail.
let isDown = false;
const runsState = (live) => ({
  total: 4,
  done: live,
  failed: 1,
  is_over: false,
  left_s: 75.5,
  live: live === 3 ? null : { number: live, name: names(live)[live], elapsed_s: 272, length_s: 300 },
  runs: names(live).map((name, number) => ({
    number,
    name,
    state: number === 3 ? "failed" : number < live ? "done" : number === live ? "running" : "waiting",
    part: number < live || number === 3 ? 1 : number === live ? 0.93 : 0,
    folder: `runs/sweep/${name}`,
    has_report: number === 0,
  })),
});

const sample = (number) => {
  if (runs !== null) return sampleOfRun(number);
  const at = NOW + number * 1000;
  const traffic = (p) => ({
    arrived_bps: p.rate,
    rate_bps: p.rate,
    marked: p.marked,
    dropped: p.dropped > 0 ? { congestion: p.dropped } : {},
    sojourn: { p50_ns: p.p50 * 1e6, p95_ns: p.p99 * 0.9e6, p99_ns: p.p99 * 1e6 },
  });
  return {
    number,
    unix_ms: at,
    interval_ns: 1e9,
    status: { uptime_ns: (8_000 + number) * 1e9, commands: 7, dropped: { congestion: 5_120, overflow: 42 } },
    ports: ["eth0", "eth1"].map((name, i) => ({
      name,
      received_bps: i === 0 ? 57e6 : 4e6,
      sent_bps: i === 0 ? 4e6 : 56e6,
      received_per_s: i === 0 ? 6_100 : 2_000,
      sent_per_s: i === 0 ? 2_000 : 6_000,
      lost: 0,
    })),
    lateness: { p50_ns: 2_048, p99_ns: 32_768 },
    objects: pipes.map((pipe) => ({
      name: pipe.name,
      flow: null,
      words: pipe.words,
      link_bps: pipe.link,
      backlog_packets: point(pipe, at).backlog,
      state: point(pipe, at).state,
      state_kinds: KINDS,
      ...traffic(point(pipe, at)),
    })),
    unlisted: 0,
    flows: Array.from({ length: 10 }, (_, i) => ({
      object: "pipe 1",
      src: i === 3 ? "2001:db8::1234:5678:9abc:def0" : `10.0.0.${i + 1}`,
      src_port: 40_000 + i,
      dst: i === 3 ? "2001:db8::1" : "192.0.2.1",
      dst_port: 443,
      proto: 6,
      icmp_id: null,
      backlog_packets: 3,
      ...traffic({ ...point(pipes[0], at), rate: 4.8e6 }),
    })),
    other_flows: {},
    rtt: {
      all: [
        { name: "all", source: "tcp", samples: 5_400, rtt: { p50_ns: 21e6, p95_ns: 34e6, p99_ns: 48e6 } },
        { name: "all", source: "quic", samples: 620, rtt: { p50_ns: 22e6, p95_ns: 33e6, p99_ns: 46e6 } },
      ],
      objects: [
        { name: "pipe 1", source: "tcp", samples: 4_100, rtt: { p50_ns: 24e6, p95_ns: 36e6, p99_ns: 49e6 } },
      ],
      hosts: [
        {
          name: "192.0.2.1",
          source: "tcp",
          samples: 3_900,
          rtt: { p50_ns: 23e6, p95_ns: 35e6, p99_ns: 47e6 },
        },
      ],
    },
    changes:
      number < 3
        ? changes
        : [...changes, { unix_ms: NOW + 2_500, by: "http 192.0.2.7", text: "<b>pipe 2</b>", refused: "no" }],
  };
};

// A live run has no changes, no round-trip times and no form.
const sampleOfRun = (number) => {
  const state = runs;
  runs = null;
  const one = sample(number);
  runs = state;
  const words = { "pipe 1": "down: droptail", "pipe 2": "up: codel" };
  const objects = one.objects.filter(({ name }) => name in words);
  return {
    ...one,
    status: { ...one.status, uptime_ns: (272 + number) * 1e9 },
    ports: ["h2", "h3"].map((name, i) => ({ ...one.ports[i], name })),
    objects: objects.map((object) => ({ ...object, words: words[object.name] })),
    flows: one.flows.map((flow, i) => ({ ...flow, src: "10.1.0.2", src_port: 40_000 + i, dst: "10.1.0.3" })),
    rtt: null,
    changes: [],
  };
};

// Samples of a connection: only some, so that the pictures are of a page at rest.
let most = 8;

// What stands for the router refuses an algorithm that it does not know, and takes one change back.
let undo = null;
const sent = [];
const control = () => ({
  is_allowed: runs === null,
  undo,
  objects: [
    { name: "pipe 1", rate: "50Mbit/s", settings: "delay 5ms queue 50", algorithm: "codel target 5ms" },
    { name: "sched 1", rate: null, settings: "", algorithm: "type fq_codel limit 1000" },
    { name: "queue 10", rate: null, settings: "sched 2 weight 5 queue 50", algorithm: "droptail" },
  ],
  aqms: ["droptail", "codel", "pie"],
  schedulers: ["wf2q+", "fq_codel"],
});
const change = (path, body) => {
  sent.push([path, body]);
  const isWrong = body.includes("cdoel");
  if (!isWrong) undo = path === "/undo" ? null : JSON.parse(body).commands;
  const error = { message: "unrecognised option ``cdoel''", place: { line: 1, column: 7 }, exit_code: 64 };
  return { undo, reply: { stdout: "", warnings: [], ...(isWrong ? { error } : {}) } };
};

const html = await readFile(here("../dist/live.html"), "utf8");
const asked = [];
// The connections that get samples.
const streams = new Set();
const server = createServer((request, response) => {
  const path = request.url ?? "/";
  asked.push(`${request.method} ${path}`);
  if (path === "/login") {
    request.resume();
    response.writeHead(204, { "Set-Cookie": "sluice_session=1; HttpOnly; SameSite=Strict; Path=/" }).end();
  } else if (path === "/") {
    response.writeHead(200, { "Content-Type": "text/html; charset=utf-8" }).end(html);
  } else if (path === "/runs" && isDown) {
    request.socket.destroy();
  } else if (path === "/runs") {
    response.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify(runs));
  } else if (path === "/control") {
    response.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify(control()));
  } else if (path === "/command" || path === "/undo") {
    let body = "";
    request.on("data", (piece) => (body += piece));
    request.on("end", () => {
      const answer = change(path, body);
      const status = answer.reply.error === undefined ? 200 : 422;
      response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(answer));
    });
  } else if (path === "/history") {
    response.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify(history()));
  } else if (path === "/events") {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    streams.add(response);
    let number = 0;
    const send = () => {
      number += 1;
      response.write(`id: ${number}\ndata: ${JSON.stringify(sample(number))}\n\n`);
    };
    send();
    const timer = setInterval(() => {
      if (number < most) send();
    }, 300);
    response.on("close", () => {
      clearInterval(timer);
      streams.delete(response);
    });
  } else {
    response.writeHead(404).end();
  }
});
await new Promise((done) => server.listen(0, "127.0.0.1", done));
const address = `http://127.0.0.1:${server.address().port}/`;

/** What a reader has scrolled, focused or selected stays when samples come. */
async function checkReader(page, where) {
  const came = (number) =>
    page.waitForFunction(
      (wanted) => document.getElementById("page").dataset.number === wanted,
      String(number),
    );
  const region = page.locator('.scroll[aria-label="Pipes and queues"]');
  await region.evaluate((element) => {
    element.focus();
    element.scrollLeft = 40;
  });
  most = 10;
  await came(10);
  // In a wide window, there is no room to scroll.
  const scrolled = await region.evaluate((element) => element.scrollLeft);
  check(scrolled === 40 || where === "1280 px", `${where}: the table is scrolled by ${scrolled}, not 40`);
  const focus = await page.evaluate(() => document.activeElement?.getAttribute("aria-label"));
  check(focus === "Pipes and queues", `${where}: the focus is on ${focus}`);
  await page.evaluate(() => {
    const cell = document.querySelector('.scroll[aria-label="Changes"] tbody td:nth-child(3)');
    getSelection().selectAllChildren(cell);
  });
  most = 12;
  await came(12);
  const selected = await page.evaluate(() => String(getSelection()));
  check(selected === "<b>pipe 2</b>", `${where}: "${selected}" is selected`);
  most = 8;
}

/** A tap on a chart holds the charts for a moment, which the page says, and not forever. */
async function checkTap(page) {
  await page.dispatchEvent("#chart-rate .u-over", "pointerdown", { pointerType: "touch" });
  most = 1000;
  await page.waitForSelector(".live-held:not([hidden])", { state: "attached" });
  await page.waitForSelector(".live-held[hidden]", { state: "attached" });
  most = 8;
}

/** After the connection was lost, the page fetches what it missed. */
async function checkLost(page, where) {
  const fetched = () => page.waitForResponse((answer) => answer.url().endsWith("/history"));
  // At this resolution, nothing else fetches it.
  await Promise.all([fetched(), page.click('button[data-value="5 min"]')]);
  const again = fetched();
  // The samples begin again, as those of a router that was started again.
  const form = page.waitForResponse((answer) => answer.url().endsWith("/control"));
  for (const stream of streams) stream.end();
  await page.waitForSelector('#page > [role="alert"]', { state: "visible" });
  await again;
  check((await form).ok(), `${where}: the form is not fetched again`);
  await page.waitForSelector('#page > [role="alert"]', { state: "hidden" });
}

/** A page in a hidden tab takes no connection, and catches up when it is seen again. */
async function checkHidden(page, where) {
  const turn = (isHidden) =>
    page.evaluate((hidden) => {
      Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, isHidden);
  // A command that somebody has typed stays.
  const typed = "pipe 1 config bw 7Mbit/s";
  await page.fill(".live-control textarea", typed);
  await page.$eval(".live-control textarea", (command) => command.blur());
  await turn(true);
  for (let wait = 0; streams.size > 0 && wait < 100; wait += 1) await page.waitForTimeout(50);
  check(streams.size === 0, `${where}: a hidden page keeps its connection`);
  const answered = (path) => page.waitForResponse((answer) => answer.url().endsWith(path));
  const fetched = Promise.all([answered("/history"), answered("/control")]);
  await turn(false);
  await fetched;
  await page.waitForFunction(() => document.getElementById("page").dataset.number === "8");
  const kept = await page.inputValue(".live-control textarea");
  check(kept === typed, `${where}: the form says "${kept}" after a hidden page is seen again`);
}

async function showRuns() {
  for (const [width, scheme] of [
    [1280, "light"],
    [390, "dark"],
  ]) {
    const where = `runs, ${width} px`;
    const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme: scheme });
    context.setDefaultTimeout(PATIENCE);
    const page = await context.newPage();
    page.on("pageerror", (error) => failures.push(`${where}: exception: ${error.message}`));
    runs = runsState(1);
    await page.goto(address);
    await page.waitForFunction(() => document.getElementById("page").dataset.number === "8");
    const charts = await page.$$eval("figure.chart:not(.empty)", (all) =>
      all.map((one) => one.dataset.chart),
    );
    check(charts.join() === "rate,sojourn,backlog,drops,state", `${where}: charts ${charts}`);
    const says = async (...words) => {
      const text = await page.textContent("#page");
      for (const word of words) check(text.includes(word), `${where}: no "${word}"`);
    };
    await says("1 of 4 done, 1 failed, about 76 s left", "codel: 280 of 300 s", "waiting", "failed");
    await says("pipe 1", "up: codel", "congestion", "tcp 10.1.0.2:40000");
    check(!(await page.isVisible(".live-control")), `${where}: a run cannot be changed`);
    const reports = await page.$$eval(".runs-table a", (all) => all.map((one) => one.getAttribute("href")));
    check(reports.join() === "/report/0", `${where}: reports ${reports}`);
    check((await page.$$("#page b")).length === 0, `${where}: a name became markup`);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    check(wide <= 0, `${where}: the page is ${wide} px too wide`);
    await page.screenshot({ path: `${out}/runs-${width}.png`, fullPage: true });
    await page.focus(".runs-table a");
    runs = runsState(2);
    await page.waitForFunction(() =>
      document.getElementById("page").textContent.includes("<b>fq</b>: 273 of"),
    );
    await says("2 of 4 done", "runs/sweep/codel");
    // A connection that is broken for a while.
    isDown = true;
    await page.waitForFunction(() =>
      document.getElementById("page").textContent.includes("No answer; the runs may have ended."),
    );
    await says("<b>fq</b>: 2", "pipe 1");
    isDown = false;
    await page.waitForFunction(() => document.getElementById("page").textContent.includes("2 of 4 done"));
    const focus = await page.evaluate(() => document.activeElement?.getAttribute("href"));
    check(focus === "/report/0", `${where}: the focus is on ${focus}`);
    runs = runsState(3);
    // The figures of the last run stay.
    await page.waitForFunction(() => document.getElementById("page").textContent.includes("<b>fq</b>: over"));
    await says("pipe 1");
    runs = { ...runsState(3), is_over: true };
    await page.waitForFunction(() =>
      document.getElementById("page").textContent.includes("The runs have ended."),
    );
    // Reports are no longer served; the folders stay.
    const dead = await page.$$eval(".runs-table a", (all) => all.length);
    check(dead === 0, `${where}: ${dead} links to reports after the end`);
    await says("3 of 4 done, 1 failed", "runs/sweep/fifo");
    const before = asked.length;
    await page.waitForTimeout(2500);
    check(asked.length === before, `${where}: asks again after the end: ${asked.slice(before)}`);
    await context.close();
  }
}

await mkdir(out, { recursive: true });
const browser = await chromium.launch({
  executablePath: browserPath,
  timeout: PATIENCE,
  args: ["--no-sandbox"],
});
try {
  for (const [width, scheme] of [
    [1280, "light"],
    [390, "dark"],
  ]) {
    const context = await browser.newContext({
      viewport: { width, height: 900 },
      colorScheme: scheme,
      timezoneId: "UTC",
    });
    context.setDefaultTimeout(PATIENCE);
    const page = await context.newPage();
    const where = `${width} px`;
    page.on("console", (message) => {
      // The browser reports the refusal that the test asks for.
      const isRefusal = message.text().includes("status of 422");
      if (["error", "warning"].includes(message.type()) && !isRefusal)
        failures.push(`${where}: ${message.text()}`);
    });
    page.on("pageerror", (error) => failures.push(`${where}: exception: ${error.message}`));
    await page.goto(`${address}#token=0123456789abcdef`);
    await page.waitForSelector('#page[data-state="drawn"]');
    check(!page.url().includes("token"), `${where}: the token stays in the address`);
    const charts = await page.$$eval("figure.chart:not(.empty)", (all) =>
      all.map((one) => one.dataset.chart),
    );
    check(charts.join() === "rate,sojourn,backlog,drops,state", `${where}: charts ${charts}`);
    await page.waitForFunction(() => document.getElementById("page").dataset.number === "8");
    const text = await page.textContent("#page");
    for (const word of [
      "pipe 1",
      "fq_codel target 5ms",
      "congestion",
      "<b>pipe 2</b>",
      "refused: no",
      "tcp 10.0.0.1:40000",
      "Round-trip times",
      "Busiest hosts, of the 10 busiest flows",
      "quic",
    ]) {
      check(text.includes(word), `${where}: no "${word}"`);
    }
    await page.selectOption(".live-fields select >> nth=0", "pipe 1");
    const composed = await page.inputValue(".live-control textarea");
    check(
      composed === "pipe 1 config bw 50Mbit/s delay 5ms queue 50 codel target 5ms",
      `${where}: the form says "${composed}"`,
    );
    await page.fill(".live-control input >> nth=0", "20Mbit/s");
    await page.selectOption(".live-fields select >> nth=1", "pie");
    await page.click('.live-control button:has-text("Apply")');
    await page.waitForFunction(() => document.querySelector(".live-result").textContent.includes("done"));
    const changed = "pipe 1 config bw 20Mbit/s delay 5ms queue 50 pie";
    check(
      JSON.stringify(sent.at(-1)) === JSON.stringify(["/command", JSON.stringify({ commands: changed })]),
      `${where}: sent ${sent.at(-1)}`,
    );
    await page.click(`.live-control button:has-text("Undo ${changed}")`);
    await page.waitForFunction(() => document.querySelectorAll(".live-control button")[1].disabled);
    check(sent.at(-1)[0] === "/undo", `${where}: no undo`);
    await page.fill(".live-control textarea", "pipe 1 cdoel");
    await page.click('.live-control button:has-text("Apply")');
    await page.waitForSelector(".live-result.banner");
    const refused = await page.textContent(".live-result");
    check(refused.includes("``cdoel'' (column 7)"), `${where}: the refusal says "${refused}"`);
    await page.selectOption(".live-fields select >> nth=0", "sched 1");
    const scheduler = await page.inputValue(".live-control textarea");
    check(scheduler === "sched 1 config type fq_codel limit 1000", `${where}: the form says "${scheduler}"`);
    await page.$eval(".live-result", (result) => result.classList.remove("banner"));
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    check(wide <= 0, `${where}: the page is ${wide} px too wide`);
    await page.screenshot({ path: `${out}/live-${width}.png`, fullPage: true });
    // The variables of the algorithm, with the unit of the chosen one.
    const offered = await page.$$eval("#chart-state option", (all) => all.map((one) => one.value));
    check(offered.join() === "count,drop_next,dropping", `${where}: variables ${offered}`);
    await page.selectOption("#chart-state select", "drop_next");
    await page.waitForFunction(() =>
      document.querySelector("#chart-state .caption").textContent.startsWith("drop_next:"),
    );
    // Since the change, a third of the chart.
    const plot = await page.locator("#chart-state .u-over").boundingBox();
    await page.hover("#chart-state .u-over", { position: { x: 0.85 * plot.width, y: plot.height / 2 } });
    await page.waitForSelector("#chart-state .tooltip .value");
    const said = await page.textContent("#chart-state .tooltip .value");
    check(/^in \d+(\.\d+)?\u00a0ms$/.test(said), `${where}: the chart says "${said}"`);
    await page.mouse.move(0, 0);
    await page.click('button[data-value="24 h"]');
    await page.waitForFunction(() => document.querySelector("#chart-rate").dataset.series === "3");
    await page.selectOption(".live-picker select", "pipe 1");
    await page.waitForFunction(() => document.querySelector("#chart-rate").dataset.series === "1");
    // Two reasons, and the marks.
    await page.waitForFunction(() => document.querySelector("#chart-drops").dataset.series === "3");
    await page.screenshot({ path: `${out}/live-${width}-day.png` });
    await checkReader(page, where);
    await checkTap(page);
    await checkLost(page, where);
    await checkHidden(page, where);
    await context.close();
  }
  check(asked.includes("POST /login"), "the page did not log in");
  await showRuns();
} finally {
  await browser.close();
  server.closeAllConnections();
  server.close();
}
if (failures.length > 0) {
  for (const failure of failures) console.error(`live: ${failure}`);
  process.exit(1);
}
console.log(`live: ok, screenshots in ${out}`);
