// What can be checked without a browser: digits, zooming, units, the tree of stacks.
import assert from "node:assert/strict";
import { before, test } from "node:test";
import { build } from "esbuild";

let exact, view, units, tree;
before(async () => {
  const load = (path) => bundled(new URL(`../src/${path}`, import.meta.url).pathname);
  [exact, view, units, tree] = await Promise.all(
    ["exact.ts", "pages/timeline/view.ts", "units.ts", "pages/flame/tree.ts"].map(load),
  );
});

async function bundled(entry) {
  const { outputFiles } = await build({ entryPoints: [entry], bundle: true, format: "esm", write: false });
  return import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString("base64")}`);
}

test("long integers keep their digits, and nothing else changes", () => {
  const json = `{"at": 1794753553722026842, "share": 0.12345678901234567, "text": "id 1794753553722026842 \\"9999999999999999\\"", "n": [-9223372036854775808, 12, 1e300]}`;
  const answer = exact.parseExactly(json);
  assert.equal(answer.at, "1794753553722026842");
  assert.equal(answer.share, 0.12345678901234567);
  assert.equal(answer.text, 'id 1794753553722026842 "9999999999999999"');
  assert.deepEqual(answer.n, ["-9223372036854775808", 12, 1e300]);
  assert.equal(exact.since("1794753553722026842", "1794753553722026843"), 1);
});

test("what is under the pointer stays there while one zooms", () => {
  const all = { from: 0, to: 1e9 };
  const zoomed = view.zoomed({ from: 2e8, to: 6e8 }, 3e8, 0.5, all);
  assert.deepEqual(zoomed, { from: 2.5e8, to: 4.5e8 });
  assert.deepEqual(view.zoomed(zoomed, 3e8, 1e9, all), all);
  assert.deepEqual(view.panned(zoomed, 1e12, all), { from: 8e8, to: 1e9 });
});

test("a slice serves while it covers the view and is not too coarse for it", () => {
  const all = { from: 0, to: 1000e6 };
  assert.ok(view.serves(all, all, all));
  assert.ok(!view.serves(all, { from: 0, to: 100e6 }, all));
  const loaded = view.around({ from: 400e6, to: 500e6 }, all);
  assert.ok(view.serves(loaded, { from: 420e6, to: 520e6 }, all));
  assert.ok(!view.serves(loaded, { from: 480e6, to: 580e6 }, all));
});

test("marks of an axis are round and can be told apart", () => {
  const marks = view.ticks({ from: 1.83e9, to: 1.86e9 }, 6);
  const texts = marks.map((mark) => units.offset(mark, marks[1] - marks[0]));
  assert.deepEqual(texts.slice(0, 2), ["1.830 s", "1.835 s"]);
  assert.equal(new Set(texts).size, texts.length);
});

test("numbers are written for people", () => {
  assert.equal(units.duration(1234), "1.23 µs");
  assert.equal(units.duration(45_600_000), "45.6 ms");
  assert.equal(units.bytes(1536), "1.50 KiB");
  assert.deepEqual([units.counted(1, "step"), units.counted(2000, "step")], ["1 step", "2,000 steps"]);
  assert.equal(units.share(0.3712), "37 %");
  assert.equal(units.share(0.00001), "< 0.01 %");
  assert.equal(units.who("python3", 7, 9), "python3 (7/9)");
});

test("stacks with the same callers share their frames, and a cut one says so", () => {
  const frame = (name) => ({ kind: "native", function: name, file: "a.c", line: 1, module: null, is_inlined: false });
  const stack = (ns, end, ...names) => ({
    ns,
    count: 1,
    share: 0,
    end,
    python_end: null,
    site: null,
    frames: names.map(frame),
  });
  const stacks = [
    stack(5, "complete", "read", "main"),
    stack(3, "complete", "write", "main"),
    stack(2, "no_rule", "read"),
  ];
  const root = tree.tree(stacks, (each) => each.ns);
  assert.equal(root.value, 10);
  assert.deepEqual(
    root.children.map((node) => [node.name, node.value]),
    [
      ["[callers not known]", 2],
      ["main", 8],
    ],
  );
  const main = root.children[1];
  assert.deepEqual(
    main.children.map((node) => [node.name, node.start]),
    [
      ["read", 2],
      ["write", 7],
    ],
  );
  assert.equal(tree.nodeAt(root, tree.pathOf(main.children[1])), main.children[1]);
});
