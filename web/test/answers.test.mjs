// Answers that are not the demo's: hostile names, errors, a token, a trace that still grows, nothing wrong at all.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { BASE, settled, start } from "./browser.mjs";

let browser;
before(async () => (browser = await start()));
after(() => browser?.close());

/** A page whose answers are changed on their way. */
async function changed(change) {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.route("**/api/v1/tools/*", async (route) => {
    try {
      await change(route, route.request().url().split("/").pop());
    } catch (error) {
      // Whoever closes a page does not wait for its last answers.
      if (!page.isClosed()) throw error;
    }
  });
  return { page, context };
}

test("names that carry HTML stay text on every page", async () => {
  const name = `<img src=x onerror=window.broken=1><b class=bold>`;
  const { page, context } = await changed(async (route) => {
    const response = await route.fetch();
    const body = (await response.text()).replaceAll("disk-loader", name).replaceAll("scenario_disk.c", `${name}.c`);
    await route.fulfill({ response, body: body.replaceAll("cuLaunchKernel", name).replaceAll("read_block", name) });
  });
  for (const path of ["", "timeline", "time", "calls", "flame?of=waits", "memory", "coverage", "sql"]) {
    await page.goto(`${BASE}#/${path}`);
    await settled(page);
    assert.equal(await page.evaluate(() => window.broken), undefined, path);
    assert.equal(await page.locator(".bold, img[src=x]").count(), 0, path);
  }
  await page.goto(`${BASE}#/`);
  await page.locator("main").getByText("<b class=bold>").first().waitFor();
  await context.close();
});

test("a refused question says why where its panel is, and the rest of the page stands", async () => {
  const error = { error: { code: "timeout", message: "It took longer than 10 s.", hint: "Ask for less time." } };
  const { page, context } = await changed(async (route, question) => {
    if (question === "off_cpu") await route.fulfill({ status: 504, json: error });
    else await route.continue();
  });
  await page.goto(`${BASE}#/time`);
  await page.getByRole("alert").getByText("Ask for less time.").waitFor();
  await page.getByText("waiting for input").first().waitFor();
  await context.close();
});

test("a server that wants a token is given one, and it is not in the address", async () => {
  const { page, context } = await changed(async (route) => {
    const given = route.request().headers().authorization;
    if (given === "Bearer correct horse battery") return route.continue();
    const json = { error: { code: "unauthorized", message: "A token is needed.", hint: null } };
    return route.fulfill({ status: 401, json });
  });
  await page.goto(`${BASE}#/`);
  await page.getByLabel("Token").fill("wrong");
  await page.getByRole("button", { name: "Continue" }).click();
  await page.getByLabel("Token").fill("correct horse battery");
  await page.getByRole("button", { name: "Continue" }).click();
  await page.getByText("Input came too late").waitFor();
  assert.ok(!page.url().includes("horse"));
  await context.close();
});

test("a trace that still grows is asked again by itself", async () => {
  let asked = 0;
  const { page, context } = await changed(async (route, question) => {
    if (question === "findings") asked += 1;
    if (question !== "summary") return route.continue();
    const response = await route.fetch();
    const now = `${BigInt(Date.now()) * 1_000_000n}`;
    const body = (await response.text())
      .replace(/"ended_ns": ?\d+/, '"ended_ns": null')
      .replace(/"last_commit_ns": ?\d+/, `"last_commit_ns": ${now}`);
    return route.fulfill({ response, body });
  });
  await page.goto(`${BASE}#/`);
  await page.getByText("recording").waitFor();
  const deadline = Date.now() + 12_000;
  while (asked < 4 && Date.now() < deadline) await page.waitForTimeout(100);
  assert.ok(asked >= 4, `asked ${asked} times`);
  await context.close();
});

test("when nothing is wrong, it says so", async () => {
  const { page, context } = await changed(async (route, question) => {
    if (question !== "findings") return route.continue();
    const response = await route.fetch();
    const answer = JSON.parse(await response.text());
    return route.fulfill({ response, json: { ...answer, findings: [] } });
  });
  await page.goto(`${BASE}#/`);
  await page.getByRole("heading", { name: "Nothing is wrong" }).waitFor();
  await context.close();
});

test("each class of evidence has its own line and its own words", async () => {
  const classes = ["explicit", "observed", "inferred", "missing"];
  const { page, context } = await changed(async (route, question) => {
    if (question !== "findings") return route.continue();
    const response = await route.fetch();
    const answer = JSON.parse(await response.text());
    const edge = answer.findings[0].chain[0];
    answer.findings[0].chain = classes.map((evidence) => ({ ...edge, evidence }));
    return route.fulfill({ response, json: answer });
  });
  await page.goto(`${BASE}#/`);
  const graph = page.locator(".finding.first .chain");
  for (const evidence of classes) {
    await graph.locator(`.edge .line.${evidence}`).waitFor();
    await graph.locator(".legend").getByText(evidence, { exact: true }).waitFor();
  }
  if (process.env.GPUWHY_SHOTS)
    await page.screenshot({ path: `${process.env.GPUWHY_SHOTS}/evidence.png`, fullPage: true });
  await context.close();
});
