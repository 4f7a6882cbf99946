// A million calls: the timeline is there soon, and zooming stays smooth. Needs a server on such a trace (GPUWHY_BIG_URL).
import assert from "node:assert/strict";
import { test } from "node:test";
import { start } from "./browser.mjs";

const URL = process.env.GPUWHY_BIG_URL;
const FIRST_PAINT_MS = 1500;
const LEAST_FRAMES = 30;

test(
  "a million events are drawn soon and zoom smoothly",
  { skip: URL ? false : "GPUWHY_BIG_URL is not set" },
  async () => {
    const browser = await start();
    const page = await browser.newPage({ viewport: { width: 1280, height: 860 } });
    const begun = Date.now();
    await page.goto(`${URL}#/timeline`);
    const canvas = page.locator("canvas[role=application]");
    await canvas.waitFor();
    const paint = Date.now() - begun;
    const box = await canvas.boundingBox();
    await page.mouse.move(box.x + box.width / 2, box.y + 50);
    const frames = page.evaluate(measure, 3000);
    const until = Date.now() + 2800;
    for (let turn = 0; Date.now() < until; turn += 1) await page.mouse.wheel(0, turn % 60 < 30 ? -120 : 120);
    const { perSecond, slowest } = await frames;
    console.log(
      `first paint ${paint} ms, ${perSecond.toFixed(1)} frames/s while zooming, slowest frame ${slowest.toFixed(0)} ms`,
    );
    await browser.close();
    assert.ok(paint <= FIRST_PAINT_MS, `first paint took ${paint} ms`);
    assert.ok(perSecond >= LEAST_FRAMES, `${perSecond.toFixed(1)} frames a second`);
  },
);

/** Frames that the browser got to show, for so long. */
function measure(ms) {
  return new Promise((resolve) => {
    const times = [];
    const tick = (now) => {
      times.push(now);
      if (now - times[0] < ms) requestAnimationFrame(tick);
      else {
        const gaps = times.slice(1).map((time, index) => time - times[index]);
        resolve({ perSecond: (gaps.length / (now - times[0])) * 1000, slowest: Math.max(...gaps) });
      }
    };
    requestAnimationFrame(tick);
  });
}
