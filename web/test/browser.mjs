// Debian's Chromium, with nothing of its own on the network, and what a page did that it must not do.
import { chromium } from "playwright-core";

export const BASE = process.env.GPUWHY_URL ?? "http://127.0.0.1:8090/";
/** The same dashboard on a trace of a million events. */
export const LARGE = process.env.GPUWHY_LARGE_URL;
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"];
const QUIET = ["--disable-background-networking", "--disable-component-update", "--disable-sync"];

export function start() {
  const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
  return chromium.launch({ executablePath, args: [...FLAGS, ...QUIET] });
}

/** A page at an address, and the errors and foreign requests it caused. */
export async function visit(browser, address, { base = BASE, dark = false, width = 1280, height = 860 } = {}) {
  const colorScheme = dark ? "dark" : "light";
  const context = await browser.newContext({ viewport: { width, height }, colorScheme, reducedMotion: "reduce" });
  const page = await context.newPage();
  const wrong = [];
  page.on("console", (message) => message.type() === "error" && wrong.push(`console: ${message.text()}`));
  page.on("pageerror", (error) => wrong.push(`exception: ${error.message}`));
  page.on("request", (request) => {
    if (!request.url().startsWith(base)) wrong.push(`foreign request: ${request.url()}`);
  });
  await page.goto(base + address);
  await settled(page);
  return { page, context, wrong };
}

/** Nothing on the page says that it is still reading. */
export async function settled(page) {
  await page.waitForSelector("main");
  await page.waitForLoadState("networkidle");
  await page.waitForFunction(() => !document.querySelector(".loading, [aria-busy=true]"), null, { timeout: 20000 });
}
