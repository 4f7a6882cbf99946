// How soon a large timeline is there, and how smoothly it zooms: one JSON line. usage: node bench.mjs URL
import { start } from "./test/browser.mjs";

const [url] = process.argv.slice(2);
const browser = await start();
const page = await browser.newPage({ viewport: { width: 1280, height: 860 } });
const begun = performance.now();
await page.goto(`${url}#/timeline`);
const canvas = page.locator("canvas[role=application]");
await canvas.waitFor();
const firstPaint = performance.now() - begun;
const box = await canvas.boundingBox();
await page.mouse.move(box.x + box.width / 2, box.y + 50);
const frames = page.evaluate(measure, 3000);
const until = performance.now() + 2800;
for (let turn = 0; performance.now() < until; turn += 1) await page.mouse.wheel(0, turn % 60 < 30 ? -120 : 120);
const { perSecond, slowest } = await frames;
await browser.close();
console.log(JSON.stringify({ first_paint_ms: firstPaint, frames_per_second: perSecond, slowest_frame_ms: slowest }));

/** Frames that the browser got to show, for so long. */
function measure(ms) {
  return new Promise((resolve) => {
    const times = [];
    const tick = (now) => {
      times.push(now);
      if (now - times[0] < ms) return requestAnimationFrame(tick);
      const gaps = times.slice(1).map((time, index) => time - times[index]);
      resolve({ perSecond: (gaps.length / (now - times[0])) * 1000, slowest: Math.max(...gaps) });
    };
    requestAnimationFrame(tick);
  });
}
