// What somebody does with it: follow the evidence, zoom, use the keyboard, share a link, ask in SQL.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { BASE, settled, start, visit } from "./browser.mjs";

let browser;
before(async () => (browser = await start()));
after(() => browser?.close());

const lanes = (page) => page.locator("canvas[role=application]");
const hashed = (page, wanted) =>
  page.waitForFunction((text) => decodeURIComponent(location.hash).includes(text), wanted);

test("an edge of the chain opens its records, and Escape closes them", async () => {
  const { page, context } = await visit(browser, "#/");
  await page.locator("a.node").first().click();
  const drawer = page.getByRole("dialog");
  await drawer.getByText("sched:").first().waitFor();
  await drawer.getByText("disk-loader").first().waitFor();
  await hashed(page, "record=sched:");
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => !location.hash.includes("record"));
  assert.equal(await drawer.isVisible(), false);
  await context.close();
});

test("the first stop of the keyboard leads to the content, and pages are links", async () => {
  const { page, context } = await visit(browser, "#/");
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to the content");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  await page.getByRole("link", { name: "Timeline", exact: true }).focus();
  await page.keyboard.press("Enter");
  await hashed(page, "#/timeline");
  await settled(page);
  await lanes(page).focus();
  await page.keyboard.press("+");
  await hashed(page, "view=");
  await page.keyboard.press("n");
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").getByText("cuda:").first().waitFor();
  await page.keyboard.press("Escape");
  await lanes(page).focus();
  await page.keyboard.press("0");
  await page.waitForFunction(() => !location.hash.includes("view="));
  await page.keyboard.press("/");
  await page.getByText("show everything").waitFor();
  await context.close();
});

test("the wheel zooms around the pointer, and the link shows the same span to somebody else", async () => {
  const { page, context } = await visit(browser, "#/timeline");
  const box = await lanes(page).boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + 40);
  for (let turn = 0; turn < 8; turn += 1) await page.mouse.wheel(0, -240);
  await hashed(page, "view=");
  await page.waitForFunction(() => !document.querySelector("main").innerText.includes("reading more"));
  const link = page.url();
  const visible = await page.locator(".timeline-tools [role=status]").innerText();
  const other = await visit(browser, link.slice(BASE.length));
  await other.page.waitForFunction(() => !document.querySelector("main").innerText.includes("reading more"));
  assert.equal(await other.page.locator(".timeline-tools [role=status]").innerText(), visible);
  assert.notEqual(visible, "4.63 s visible");
  await Promise.all([context.close(), other.context.close()]);
});

test("a part that is chosen on the timeline is the part on every page", async () => {
  const { page, context } = await visit(browser, "#/timeline");
  await page.getByRole("button", { name: "Zoom in" }).click();
  await page.getByRole("button", { name: "Look at this span on all pages" }).click();
  await page.getByRole("button", { name: "Show the whole trace" }).waitFor();
  await page.getByRole("link", { name: "Calls" }).click();
  await hashed(page, "from=");
  await page.getByRole("button", { name: "Show the whole trace" }).click();
  await page.waitForFunction(() => !location.hash.includes("from="));
  await context.close();
});

test("a function of the table leads to its slow calls", async () => {
  const { page, context } = await visit(browser, "#/calls");
  await page.getByRole("button", { name: "cuLaunchKernel" }).first().click();
  await page.getByRole("heading", { name: "Slowest calls of cuLaunchKernel" }).waitFor();
  await page.getByRole("button", { name: "Open the log" }).click();
  await page.getByRole("button", { name: "Later" }).click();
  await page.getByText("page 2").waitFor();
  await context.close();
});

test("the flame graph zooms by click and finds functions", async () => {
  const { page, context } = await visit(browser, "#/flame?of=waits");
  await lanes(page).click({ position: { x: 30, y: 34 } });
  await hashed(page, "path=");
  await page.getByRole("button", { name: "Show all" }).click();
  await page.getByRole("searchbox").fill("read_block");
  await page.getByText(/\d+ % match/).waitFor();
  await context.close();
});

test("SQL that is refused says why, and rows can be drawn", async () => {
  const { page, context } = await visit(browser, "#/sql");
  const statement = page.getByLabel("Statement");
  await statement.fill("DROP TABLE calls");
  await statement.press("Control+Enter");
  await page.getByRole("alert").waitFor();
  await statement.fill("SELECT timestamp_ns, duration_ns FROM cuda_events LIMIT 100");
  await statement.press("Control+Enter");
  await page.getByText("100 rows").waitFor();
  await page.getByRole("radio", { name: "Chart" }).check();
  await page.locator(".chart canvas").waitFor();
  await context.close();
});

test("the colours that somebody chose stay", async () => {
  const { page, context } = await visit(browser, "#/");
  await page.getByRole("button", { name: "Use dark colours" }).click();
  await page.reload();
  await settled(page);
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
  await context.close();
});
