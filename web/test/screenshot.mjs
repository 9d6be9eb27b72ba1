// Opens pages from disk in headless Chromium and keeps screenshots in artifacts/. A report must draw,
// zoom, toggle variants and show tooltips; an index must draw its tables and pictures, and its links
// must lead to its sections. Neither may touch a network.
//
//   node test/screenshot.mjs [PAGE.html ...] [--out DIR]
//
// Needs Chromium (`apt-get install chromium`), or its path in CHROMIUM.
import { existsSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { basename, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";

const { values, positionals } = parseArgs({ options: { out: { type: "string" } }, allowPositionals: true });
const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const samples = ["../dist/sample.html", "../dist/sample-crowd.html", "../dist/sample-index.html"].map(here);
const pages = (positionals.length > 0 ? positionals : samples).map((path) => resolve(path));
const out = resolve(values.out ?? here("../../artifacts"));
const browserPath = [
  process.env.CHROMIUM,
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
].find((path) => path !== undefined && existsSync(path));

// A slow disk or a busy machine makes nothing wrong.
const PATIENCE = 180_000;
const failures = [];
let visited = "";
const fail = (sentence) => failures.push(`${visited}: ${sentence}`);
const check = (holds, sentence) => {
  if (!holds) fail(sentence);
};

/** Share of the canvas that is coloured and not grey: lines and points, but not axes and text. */
const colored = (figure) =>
  figure.$eval("canvas", (canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let count = 0;
    for (let at = 0; at < data.length; at += 4) {
      const [r, g, b, a] = data.subarray(at, at + 4);
      if (a > 0 && Math.max(r, g, b) - Math.min(r, g, b) > 60) count += 1;
    }
    return count;
  });

const picture = (figure) => figure.$eval("canvas", (canvas) => canvas.toDataURL());
const range = (page) =>
  page.$eval("#charts", (element) => [Number(element.dataset.from), Number(element.dataset.to)]);
const drawnFigures = async (page) => {
  const figures = await page.$$("figure.chart:not(.empty)");
  return Promise.all(
    figures.map(async (figure) => ({
      figure,
      id: await figure.getAttribute("data-chart"),
      series: Number(await figure.getAttribute("data-series")),
      shown: Number(await figure.getAttribute("data-shown")),
    })),
  );
};
/** Resolves when charts have had time to redraw: two frames. */
const settled = (page) =>
  page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));

async function open(context, page, file) {
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) fail(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => fail(`exception: ${error.message}`));
  context.on("request", (request) => {
    const url = request.url();
    if (url !== pathToFileURL(file).href && !url.startsWith("data:") && !url.startsWith("blob:")) {
      fail(`the page asked for ${url}`);
    }
  });
  const begun = performance.now();
  await page.goto(pathToFileURL(file).href);
  await page.waitForSelector('#page[data-state="drawn"]');
  await settled(page);
  return performance.now() - begun;
}

async function checkDrawn(page) {
  const figures = await drawnFigures(page);
  check(figures.length >= 4, `only ${figures.length} charts have anything to show`);
  for (const { figure, id, series } of figures) {
    check(series > 0, `chart ${id} has no series`);
    const pixels = await colored(figure);
    check(pixels > 50, `chart ${id} has drawn nothing (${pixels} coloured pixels)`);
  }
  // What a screen reader says of a picture is its title and its caption.
  const unlike = await page.$$eval("figure.chart:not(.empty)", (charts) =>
    charts
      .filter((chart) => {
        const [title, caption] = ["h3", ".caption"].map((part) => chart.querySelector(part).textContent);
        return chart.querySelector("canvas").getAttribute("aria-label") !== `${title}. ${caption}`;
      })
      .map((chart) => chart.id),
  );
  check(unlike.length === 0, `labels that are not those of the caption: ${unlike.join(", ")}`);
  const bars = await page.$$eval(
    ".bars .bar",
    (elements) => elements.filter((bar) => bar.offsetWidth > 1).length,
  );
  const variants = (await page.$$(".toggle")).length;
  check(bars > 0 || variants === 1, "no bar of the totals has a width");
  return figures;
}

async function checkWidth(page) {
  const overflow = await page.evaluate(() => document.scrollingElement.scrollWidth - innerWidth);
  check(overflow <= 0, `the page is ${overflow} px wider than the window`);
  const cut = await page.$$eval("table", (tables) =>
    tables
      .filter((table) => {
        const room = table.closest(".scroll");
        const isWider = table.scrollWidth > (room ?? table.parentElement).clientWidth + 1;
        const hasShade = room !== null && getComputedStyle(room).backgroundImage.includes("gradient");
        return isWider && !hasShade;
      })
      .map((table) => table.closest("[id]")?.id),
  );
  check(cut.length === 0, `tables are cut without a hint: ${cut.join(", ")}`);
}

/** Text of drawings keeps its size on narrow screens. */
async function checkText(page) {
  const sizes = await page.$$eval(".drawing svg", (drawings) =>
    drawings
      .filter((drawing) => drawing.getClientRects().length > 0)
      .flatMap((drawing) => {
        const scale = drawing.getBoundingClientRect().width / drawing.viewBox.baseVal.width;
        return [...drawing.querySelectorAll("text")].map(
          (text) => Number.parseFloat(getComputedStyle(text).fontSize) * scale,
        );
      }),
  );
  const least = Math.min(...sizes);
  check(sizes.length === 0 || least >= 10, `a drawing has text of ${least.toFixed(1)} px`);
  const touching = await page.$$eval(".drawing svg", (drawings) =>
    drawings.flatMap((drawing) => {
      const texts = [...drawing.querySelectorAll("text")];
      const boxes = texts.map((text) => text.getBoundingClientRect());
      return boxes.flatMap((a, at) =>
        boxes
          .slice(0, at)
          .flatMap((b, before) =>
            a.left + 1 < b.right && b.left + 1 < a.right && a.top + 3 < b.bottom && b.top + 3 < a.bottom
              ? [`"${texts[at].textContent}" and "${texts[before].textContent}"`]
              : [],
          ),
      );
    }),
  );
  check(touching.length === 0, `texts of a drawing touch: ${touching[0]}`);
}

/** On paper, nothing may be wider than the page, because the browser would shrink everything. */
async function checkPaper(page) {
  const usual = page.viewportSize();
  await page.emulateMedia({ media: "print" });
  // The browser lays the page out for paper only after the event, so the window still has its size.
  await page.setViewportSize({ width: 390, height: 1000 });
  await page.evaluate(() => dispatchEvent(new Event("beforeprint")));
  await settled(page);
  const narrow = await page.evaluate(() =>
    [...document.querySelectorAll("#charts > .charted > figure.chart:not(.empty) .uplot")]
      .map((plot) => plot.getBoundingClientRect().width)
      .filter((width) => width < 640),
  );
  check(narrow.length === 0, `charts fill only ${narrow[0]} of 688 px of the paper`);
  // A4 less margins of 14 mm, in CSS pixels.
  await page.setViewportSize({ width: 688, height: 1000 });
  await settled(page);
  const wide = await page.evaluate(() =>
    [...document.querySelectorAll("table, canvas, svg")]
      .filter((element) => element.getBoundingClientRect().right > 689)
      .map((element) => `${element.tagName} of ${element.closest("[id]")?.id}`),
  );
  check(wide.length === 0, `wider than the paper: ${wide.join(", ")}`);
  const controls = await page.$$eval(
    "select, input, .choice",
    (elements) => elements.filter((element) => element.getClientRects().length > 0).length,
  );
  check(controls === 0, `${controls} controls are printed`);
  await page.evaluate(() => dispatchEvent(new Event("afterprint")));
  await page.emulateMedia({ media: null });
  await page.setViewportSize(usual);
  await settled(page);
}

/** A page that is printed as soon as it is loaded is complete. */
async function checkLoaded(browser, file) {
  const page = await browser.newPage();
  page.setDefaultTimeout(PATIENCE);
  await page.goto(pathToFileURL(file).href, { waitUntil: "load" });
  const state = await page.evaluate(() => document.getElementById("page").dataset.state);
  check(state === "drawn", `the page is ${state ?? "not drawn"} when it is loaded`);
  await page.close();
}

async function checkIndex(page) {
  const scenarios = await page.$$(".scenario");
  check(scenarios.length > 0, "the index shows no scenario");
  for (const scenario of scenarios) {
    const id = await scenario.getAttribute("id");
    const [rows, pictures, sentences] = await Promise.all(
      ["tbody tr", ".spark path:not([d=''])", ".judgements li"].map(
        async (selector) => (await scenario.$$(selector)).length,
      ),
    );
    check(
      rows > 0 && pictures > 0 && sentences > 0,
      `${id}: ${rows} rows, ${pictures} pictures, ${sentences} sentences`,
    );
  }
  for (const link of await page.$$("nav a")) {
    const target = await link.evaluate((a) => document.getElementById(decodeURI(a.hash.slice(1)))?.id ?? "");
    check(target !== "", `no section for the link ${await link.getAttribute("href")}`);
  }
  return scenarios.length;
}

/** Each link within the page leads to something that is shown, or folded. */
async function checkTargets(page) {
  // `linkTo` takes the address from a link whose place does not exist.
  const { rows, links, without, charted } = await page.evaluate(() => ({
    rows: document.querySelectorAll("#figures tbody tr").length,
    links: document.querySelectorAll("#figures a[href^='#']").length,
    without: [...document.querySelectorAll("a:not([href])")].map((a) => a.textContent),
    charted: document.querySelectorAll(".charted").length,
  }));
  check(without.length === 0, `links without an address: ${without.join(", ")}`);
  check(links === rows, `${links} links in ${rows} rows of "All figures"`);
  if (rows > 0) check(charted > 0, "a report has no section with charts");
  const dead = await page.$$eval("a[href^='#']", (links) =>
    links.flatMap((link) => {
      const target = document.getElementById(decodeURI(link.hash.slice(1)));
      const isShown = target !== null && (target.getClientRects().length > 0 || target.closest("details"));
      return isShown ? [] : [link.hash];
    }),
  );
  check(dead.length === 0, `links lead nowhere: ${[...new Set(dead)].join(", ")}`);
  const bare = await page.$$eval(".charted", (sections) => {
    const isShown = (element) => element.getClientRects().length > 0;
    return sections
      .filter((section) => isShown(section.querySelector("h2")))
      .filter((section) => ![...section.querySelectorAll("figure")].some(isShown))
      .map((section) => section.querySelector("h2").textContent);
  });
  check(bare.length === 0, `nothing below the headings ${bare.join(", ")}`);
}

/** A link to a chart shows its heading, and not the toolbar above it. */
async function checkLinks(page, figures) {
  for (const { figure, id } of figures) {
    await page.evaluate((hash) => {
      location.hash = hash;
    }, `chart-${id}`);
    await settled(page);
    const covered = await figure.$eval("h3", (heading) => {
      const { left, top, height } = heading.getBoundingClientRect();
      const there = document.elementFromPoint(left + 5, top + height / 2);
      return there?.closest("figure") === heading.closest("figure") ? "" : (there?.className ?? "nothing");
    });
    check(covered === "", `a link to chart ${id} shows ${covered} in place of its heading`);
  }
  await page.evaluate(() => {
    location.hash = "";
  });
}

async function checkZoom(page, figures) {
  const [from, to] = await range(page);
  const timeCharts = figures.filter(({ id }) => !id.startsWith("cdf"));
  const before = await Promise.all(timeCharts.map(({ figure }) => picture(figure)));
  const target = await timeCharts[0].figure.$(".u-over");
  await target.scrollIntoViewIfNeeded();
  const box = await target.boundingBox();
  const y = box.y + box.height / 2;
  await page.mouse.move(box.x + box.width * 0.25, y);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.4, y, { steps: 4 });
  await page.mouse.move(box.x + box.width * 0.5, y, { steps: 4 });
  await page.mouse.up();
  await settled(page);
  const [zoomFrom, zoomTo] = await range(page);
  const wanted = [from + (to - from) * 0.25, from + (to - from) * 0.5];
  const near = (a, b) => Math.abs(a - b) < (to - from) * 0.01;
  check(
    near(zoomFrom, wanted[0]) && near(zoomTo, wanted[1]),
    `dragging from 25 % to 50 % showed ${zoomFrom}..${zoomTo} of ${from}..${to}`,
  );
  for (const [at, { figure, id }] of timeCharts.entries()) {
    check((await picture(figure)) !== before[at], `chart ${id} did not follow the zoom`);
  }
  await page.mouse.dblclick(box.x + box.width * 0.5, y);
  await settled(page);
  check(String(await range(page)) === String([from, to]), "a double click did not reset the zoom");

  await (await timeCharts[0].figure.$(".plot")).focus();
  await page.keyboard.press("+");
  const [keyFrom, keyTo] = await range(page);
  check(near(keyTo - keyFrom, (to - from) / 2), "the plus key did not halve the visible time");
  await page.keyboard.press("0");
  check(String(await range(page)) === String([from, to]), "the 0 key did not reset the zoom");
}

async function checkToggle(page, figures) {
  const toggles = await page.$$(".toggle");
  if (toggles.length < 2) return;
  const before = await Promise.all(figures.map(({ figure }) => picture(figure)));
  await toggles[0].focus();
  await page.keyboard.press("Space");
  await settled(page);
  check((await toggles[0].getAttribute("aria-pressed")) === "false", "the toggle is still pressed");
  const now = await drawnFigures(page);
  let changed = 0;
  for (const [at, { figure, id, shown }] of now.entries()) {
    const fewer = shown < figures[at].shown;
    if (!fewer) continue;
    changed += 1;
    check(
      (await picture(figure)) !== before[at],
      `chart ${id} still shows the variant that was switched off`,
    );
  }
  check(changed > 0, "no chart has fewer series after a variant was switched off");
  await page.keyboard.press("Space");
  await settled(page);
  const back = await drawnFigures(page);
  check(
    back.every(({ shown }, at) => shown === figures[at].shown),
    "switching the variant on again did not bring its series back",
  );
}

async function checkHover(page, figures) {
  for (const { figure, id } of figures) {
    const target = await figure.$(".u-over");
    await target.scrollIntoViewIfNeeded();
    const box = await target.boundingBox();
    let text = "";
    // A chart of points has a tooltip only near a point, so this moves down some columns until it
    // finds one.
    const heights = Array.from({ length: 32 }, (_, step) => 0.98 - step * 0.03);
    for (const [x, y] of [0.5, 0.62, 0.71].flatMap((x) => heights.map((y) => [x, y]))) {
      await page.mouse.move(box.x + box.width * x, box.y + box.height * y);
      text = await figure.$eval(".tooltip", (tooltip) => (tooltip.hidden ? "" : tooltip.textContent));
      if (text !== "") break;
    }
    check(/\d/.test(text), `hovering over chart ${id} showed no tooltip`);
  }
}

/** The line under the pointer is highlighted. Its height is found by trial. */
async function checkFocus(page, figures) {
  const chart = figures.find(({ id }) => id === "ping") ?? figures[0];
  const target = await chart.figure.$(".u-over");
  await target.scrollIntoViewIfNeeded();
  const box = await target.boundingBox();
  let focused = 0;
  for (let share = 0.02; share < 1 && focused === 0; share += 0.04) {
    await page.mouse.move(box.x + box.width * 0.5, box.y + box.height * share);
    focused = (await chart.figure.$$(".tooltip .focused")).length;
  }
  check(focused === 1, `no line of chart ${chart.id} is highlighted under the pointer`);
}

/** The flows of a crowd are found by their names and sorted by their figures. */
async function checkCrowd(page) {
  const card = await page.$("section[id^='flows-']");
  if (card === null) return;
  const names = () => card.$$eval("tbody th", (cells) => cells.map((cell) => cell.textContent));
  const all = await names();
  check(all.length === 20, `${all.length} flows are listed at first`);
  const one = all[3];
  await (await card.$("input")).fill(one);
  const found = await names();
  check(found.includes(one) && found.every((name) => name.includes(one)), `${one} is not found by its name`);
  await (await card.$("input")).fill("");
  await (await card.$("thead button")).click();
  const ascending = await names();
  check(ascending[0] === all[19], `sorted by goodput, ${ascending[0]} comes first and not ${all[19]}`);
  const sorted = await card.$$eval("thead [aria-sort]", (cells) => cells.map((cell) => cell.ariaSort));
  check(sorted.join() === "ascending", `the order is announced as "${sorted}"`);
}

const views = [
  { name: "1280-light", width: 1280, height: 900, colorScheme: "light" },
  { name: "1280-dark", width: 1280, height: 900, colorScheme: "dark" },
  {
    name: "390-light",
    width: 390,
    height: 844,
    colorScheme: "light",
    deviceScaleFactor: 2,
    isMobile: true,
    hasTouch: true,
  },
  {
    name: "390-dark",
    width: 390,
    height: 844,
    colorScheme: "dark",
    deviceScaleFactor: 2,
    isMobile: true,
    hasTouch: true,
  },
];

async function visit(browser, file) {
  const name = basename(file, ".html");
  visited = basename(file);
  await checkLoaded(browser, file);
  for (const { name: view, width, height, ...options } of views) {
    const context = await browser.newContext({ viewport: { width, height }, offline: true, ...options });
    context.setDefaultTimeout(PATIENCE);
    const page = await context.newPage();
    const took = await open(context, page, file);
    await checkWidth(page);
    await checkText(page);
    await page.screenshot({ path: `${out}/${name}-${view}.png`, fullPage: true });
    if ((await page.$("#charts")) === null) {
      const drawn = await checkIndex(page);
      if (view === "1280-light") console.log(`${drawn} scenarios drawn in ${basename(file)}`);
      await context.close();
      continue;
    }
    const figures = await checkDrawn(page);
    await checkTargets(page);
    await checkLinks(page, figures);
    if (view === "1280-light") {
      console.log(`${figures.length} charts drawn ${Math.round(took)} ms after opening ${basename(file)}`);
      await checkHover(page, figures);
      await checkFocus(page, figures);
      await page.screenshot({ path: `${out}/${name}-hover.png` });
      await checkZoom(page, figures);
      await checkToggle(page, figures);
      await checkCrowd(page);
      await checkPaper(page);
      await page.pdf({ path: `${out}/${name}.pdf`, format: "A4" });
    }
    await context.close();
  }
}

async function main() {
  if (browserPath === undefined) {
    throw new Error("no Chromium found: apt-get install chromium, or set CHROMIUM to its path");
  }
  await mkdir(out, { recursive: true });
  const browser = await chromium.launch({
    executablePath: browserPath,
    timeout: PATIENCE,
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
      "--no-first-run",
    ],
  });
  try {
    for (const file of pages) await visit(browser, file);
  } finally {
    await browser.close();
  }
  if (failures.length > 0) throw new Error([...new Set(failures)].join("\n"));
  console.log(`screenshots in ${out}`);
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
