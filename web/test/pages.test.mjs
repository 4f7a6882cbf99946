// Every page on the demo's trace: it says something, breaks nothing, asks nobody else, and can be read by everybody.
import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { after, before, test } from "node:test";
import { AxeBuilder } from "@axe-core/playwright";
import { start, visit } from "./browser.mjs";

const SHOTS = process.env.GPUWHY_SHOTS;
const PAGES = [
  { path: "", says: ["Input came too late", "disk-loader", "scenario_disk.c:77", "What it is not"] },
  { path: "timeline", says: ["feeds the GPU", "disk-loader", "waiting for a CPU"] },
  { path: "time", says: ["waiting for input", "Off the CPU", "disk-loader"] },
  { path: "calls", says: ["cuLaunchKernel", "p99", "Slowest calls"] },
  { path: "flame", says: ["Largest stacks", "make_step"] },
  { path: "memory", says: ["GPU memory"] },
  { path: "coverage", says: ["What tracing cost", "Nothing was lost", "How walks over stacks ended"] },
  { path: "sql", says: ["cuda_events", "worst_ms", "rows"] },
];

let browser;
before(async () => {
  if (SHOTS) await mkdir(SHOTS, { recursive: true });
  browser = await start();
});
after(() => browser?.close());

for (const { path, says } of PAGES) {
  const name = path || "verdict";
  for (const look of [
    { dark: false },
    { dark: true },
    { dark: false, width: 360, height: 740 },
    { dark: true, width: 360, height: 740 },
  ]) {
    const title = `${name}-${look.width ? "narrow" : "wide"}-${look.dark ? "dark" : "light"}`;
    test(`${title} is readable and quiet`, async () => {
      const { page, context, wrong } = await visit(browser, `#/${path}`, look);
      const text = await page.locator("main").innerText();
      for (const words of says) assert.ok(text.includes(words), `${words} is not on the page:\n${text.slice(0, 600)}`);
      assert.deepEqual(await serious(page), []);
      assert.ok(await fits(page), "the page scrolls sideways");
      if (SHOTS) await page.screenshot({ path: `${SHOTS}/${title}.png`, fullPage: true });
      assert.deepEqual(wrong, []);
      await context.close();
    });
  }
}

test("the open drawer of a record is readable too", async () => {
  const { page, context, wrong } = await visit(browser, "#/");
  await page.locator("a.node").first().click();
  await page.getByRole("dialog").getByText("woken by comm").first().waitFor();
  assert.deepEqual(await serious(page), []);
  if (SHOTS) await page.screenshot({ path: `${SHOTS}/record.png` });
  assert.deepEqual(wrong, []);
  await context.close();
});

async function serious(page) {
  const { violations } = await new AxeBuilder({ page }).analyze();
  const grave = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  return grave.map(
    ({ id, nodes }) =>
      `${id}: ${nodes
        .map((node) => node.html)
        .slice(0, 3)
        .join(" ")}`,
  );
}

function fits(page) {
  return page.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth);
}
