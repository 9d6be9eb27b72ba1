// Loads a page in headless Chromium and prints its own timings in milliseconds, as JSON.
// `node browser.mjs URL [DOWN_BPS UP_BPS LATENCY_MS]`: with the browser's built-in throttling.

import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

const { chromium } = createRequire(new URL("../../web/package.json", import.meta.url))("playwright-core");
const [url, ...throttling] = process.argv.slice(2);
const paths = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const profile = mkdtempSync(join(tmpdir(), "sluice-browser-"));
const browser = await chromium.launchPersistentContext(profile, {
  executablePath: process.env.CHROMIUM ?? paths.find(existsSync),
  args: ["--no-sandbox", "--disable-gpu"],
});
try {
  const page = await browser.newPage();
  if (throttling.length === 3) {
    const [down, up, latency] = throttling.map(Number);
    const session = await browser.newCDPSession(page);
    await session.send("Network.enable");
    await session.send("Network.emulateNetworkConditions", {
      offline: false,
      latency,
      downloadThroughput: down / 8,
      uploadThroughput: up / 8,
    });
  }
  await page.goto(url, { waitUntil: "load", timeout: 120_000 });
  const timings = await page.evaluate(() => {
    const [navigation] = performance.getEntriesByType("navigation");
    const { connectStart, connectEnd, responseStart, responseEnd, loadEventStart } = navigation;
    return {
      connect: connectEnd - connectStart,
      firstByte: responseStart,
      document: responseEnd,
      load: loadEventStart,
      resources: performance.getEntriesByType("resource").length,
    };
  });
  console.log(JSON.stringify(timings));
} finally {
  await browser.close();
  rmSync(profile, { recursive: true, force: true });
}
