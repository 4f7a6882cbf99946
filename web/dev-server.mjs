// Serves dist/ and answers questions by running `gpuwhy ask`, so that the dashboard can be worked on without
// building the binary again: GPUWHY=path/to/gpuwhy npm run dev -- FILE [PORT]
import { execFile } from "node:child_process";
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { basename, extname } from "node:path";

const here = new URL(".", import.meta.url).pathname;
const [file, port = "8090"] = process.argv.slice(2);
const binary = process.env.GPUWHY ?? "gpuwhy";
const token = process.env.GPUWHY_TOKEN;
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };
const POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'";

if (!file) {
  console.error("usage: node dev-server.mjs FILE [PORT]");
  process.exit(2);
}

createServer(async (request, response) => {
  const { pathname } = new URL(request.url, "http://localhost");
  try {
    if (pathname.startsWith("/api/v1/tools/")) await answer(request, response, pathname.split("/").pop());
    else if (pathname === "/api/v1/health") send(response, 200, { status: "ok", traces: [basename(file)] });
    else await serve(response, pathname === "/" ? "/index.html" : pathname);
  } catch (error) {
    send(response, 500, { error: { code: "internal", message: String(error.message), hint: null } });
  }
}).listen(Number(port), "127.0.0.1", () => console.log(`http://127.0.0.1:${port}/`));

async function serve(response, pathname) {
  const name = pathname.slice(1);
  if (!/^[\w.-]+$/.test(name)) return send(response, 404, { error: { code: "not_found", message: pathname } });
  const body = await readFile(`${here}dist/${name}`).catch(() => null);
  if (!body) return send(response, 404, { error: { code: "not_found", message: pathname } });
  response.writeHead(200, { "content-type": TYPES[extname(name)], "content-security-policy": POLICY });
  response.end(body);
}

async function answer(request, response, question) {
  if (token && request.headers.authorization !== `Bearer ${token}`) {
    return send(response, 401, { error: { code: "unauthorized", message: "a token is needed", hint: null } });
  }
  const parameters = JSON.parse((await text(request)) || "{}");
  const { code, out, err } = await run(["ask", question, ...flags(parameters), "--json", "--db", file]);
  if (code === 0) {
    response.writeHead(200, { "content-type": "application/json" });
    return response.end(out);
  }
  send(response, 400, { error: { code: "failed", message: err.trim().replace(/^error: /, ""), hint: null } });
}

/** Parameters of an HTTP body, as the command line takes them. */
function flags(parameters) {
  const positional = ["sql", "ref"];
  return Object.entries(parameters).flatMap(([key, value]) => {
    const flag = `--${key.replaceAll("_", "-")}`;
    if (positional.includes(key)) return ["--", value].slice(1);
    if (value === true) return [flag];
    if (value === false || value === null) return [];
    return [value].flat().flatMap((one) => [flag, String(one)]);
  });
}

function run(words) {
  return new Promise((resolve) => {
    execFile(binary, words, { maxBuffer: 1 << 28 }, (error, out, err) => resolve({ code: error ? 1 : 0, out, err }));
  });
}

async function text(request) {
  let body = "";
  for await (const chunk of request) body += chunk;
  return body;
}

function send(response, status, body) {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify(body));
}
