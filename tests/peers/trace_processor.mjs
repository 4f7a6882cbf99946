// Perfetto's trace processor as a pipe. It is the one that Perfetto's page in the browser runs, from a folder with that page.
// Requests of its protocol come on stdin, each after its length in four bytes; so do its replies on stdout.
import fs from "node:fs";
import path from "node:path";
import vm from "node:vm";

const node = globalThis.process;
const folder = node.argv[2];

// It is made for a worker of a browser, and refuses what looks like Node.
delete globalThis.process;
globalThis.self = globalThis;
globalThis.location = { href: "http://localhost/" };
globalThis.importScripts = () => {};
globalThis.WorkerGlobalScope = Object;
globalThis.XMLHttpRequest = class {
    open(_method, name) {
        this.response = fs.readFileSync(path.join(folder, path.basename(name)));
    }
    send() {}
};
console.log = console.warn = (...words) => node.stderr.write(words.join(" ") + "\n");
vm.runInThisContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"));

const port = {
    postMessage(reply) {
        const length = Buffer.alloc(4);
        length.writeUInt32LE(reply.length);
        fs.writeSync(1, length);
        for (let at = 0; at < reply.length; ) at += fs.writeSync(1, reply, at);
    },
};
globalThis.onmessage({ data: port });

function read(bytes) {
    const into = new Uint8Array(bytes);
    for (let at = 0; at < bytes; ) {
        const more = fs.readSync(0, into, at, bytes - at);
        if (more === 0) node.exit(0);
        at += more;
    }
    return into;
}

// One turn of the loop after another: what it sets up is ready with the first.
function serve() {
    const length = new DataView(read(4).buffer).getUint32(0, true);
    port.onmessage({ data: read(length) });
    setTimeout(serve, 0);
}
setTimeout(serve, 0);
