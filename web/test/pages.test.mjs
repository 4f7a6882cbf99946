// Every page on the demo's trace, and on one of a million events: it says something, breaks nothing, asks nobody else, and can be read by everybody.
import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { after, before, test } from "node:test";
import { AxeBuilder } from "@axe-core/playwright";
import { BASE, LARGE, start, visit } from "./browser.mjs";

const SHOTS = process.env.GPUWHY_SHOTS;
const LIGHT_AND_DARK = [{ dark: false }, { dark: true }];
const NARROW = { width: 360, height: 740 };
/** What each page says of each trace, and how it is looked at. */
const TRACES = [
  {
    trace: "demo",
    base: BASE,
    looks: LIGHT_AND_DARK.flatMap((look) => [look, { ...look, ...NARROW }]),
    says: {
      verdict: ["Input came too late", "disk-loader", "scenario_disk.c:77", "What it is not"],
      timeline: ["feeds the GPU", "disk-loader", "waiting for a CPU"],
      time: ["waiting for input", "Off the CPU", "disk-loader"],
      calls: ["cuLaunchKernel", "p99", "Slowest calls"],
      flame: ["Largest stacks", "make_step"],
      memory: ["GPU memory"],
      coverage: ["What tracing cost", "Nothing was lost", "How walks over stacks ended"],
      sql: ["cuda_events", "worst_ms", "rows"],
    },
  },
  {
    trace: "million",
    base: LARGE,
    looks: [{ dark: false }, { dark: true, ...NARROW }],
    says: {
      verdict: ["Waiting for a lock", "holder", "train.py:57", "What it is not"],
      timeline: ["feeds the GPU", "holder", "995,500 records"],
      time: ["waiting for a lock", "18,100 steps", "holder"],
      calls: ["cuLaunchKernel", "832,600", "Slowest calls"],
      flame: ["Largest stacks", "train.py:120", "18,100 calls"],
      memory: ["Allocated and freed", "100 / s"],
      coverage: ["995,500", "Nothing was lost"],
      sql: ["832600", "worst_ms", "rows"],
    },
  },
];

let browser;
before(async () => {
  if (SHOTS) await mkdir(SHOTS, { recursive: true });
  browser = await start();
});
after(() => browser?.close());

for (const { trace, base, looks, says } of TRACES) {
  for (const [name, words] of Object.entries(says)) {
    for (const look of looks) {
      const title = `${trace}-${name}-${look.width ? "narrow" : "wide"}-${look.dark ? "dark" : "light"}`;
      test(`${title} is readable and quiet`, async () => {
        const address = `#/${name === "verdict" ? "" : name}`;
        const { page, context, wrong } = await visit(browser, address, { base, ...look });
        const text = await page.locator("main").innerText();
        for (const word of words) assert.ok(text.includes(word), `${word} is not on the page:\n${text.slice(0, 600)}`);
        assert.deepEqual(await serious(page), []);
        assert.ok(await fits(page), "the page scrolls sideways");
        if (SHOTS) await page.screenshot({ path: `${SHOTS}/${title}.png`, fullPage: true });
        assert.deepEqual(wrong, []);
        await context.close();
      });
    }
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
