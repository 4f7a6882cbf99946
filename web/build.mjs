// Builds dist/: one script, one style sheet, one page. The binary embeds these files as they are.
import { build } from "esbuild";
import { cp, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { basename, extname } from "node:path";

const here = new URL(".", import.meta.url).pathname;
// The folder itself stays: cargo watches it.
const old = (await readdir(`${here}dist`)).filter((name) => !name.startsWith("."));
await Promise.all(old.map((name) => rm(`${here}dist/${name}`, { recursive: true })));

/** Their licences ask to travel with them. */
const licences = ["preact", "uplot"].map(async (name) => {
  const text = await readFile(`${here}node_modules/${name}/LICENSE`, "utf8");
  return `/*! ${name}\n${text.trim()}\n*/`;
});

const { metafile } = await build({
  absWorkingDir: here,
  entryPoints: { app: "src/main.tsx" },
  entryNames: "[name]-[hash]",
  outdir: "dist",
  bundle: true,
  minify: true,
  format: "esm",
  target: ["chrome109", "firefox115", "safari16"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "eof",
  footer: { js: (await Promise.all(licences)).join("\n") },
  metafile: true,
  logLevel: "warning",
});

const names = Object.keys(metafile.outputs).map((path) => basename(path));
const named = (extension) => names.find((name) => extname(name) === extension);
await writeFile(`${here}dist/index.html`, page(named(".js"), named(".css")));
await cp(`${here}src/icon.svg`, `${here}dist/icon.svg`);
for (const [path, output] of Object.entries(metafile.outputs)) console.log(path, `${output.bytes} bytes`);

function page(script, style) {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>gpuwhy</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="${style}">
<script type="module" src="${script}"></script>
</head>
<body>
<div id="app"></div>
<noscript>This page draws with JavaScript. Without it, ask in a terminal: gpuwhy explain FILE</noscript>
</body>
</html>
`;
}
