// What Datadog's reader of pprof finds in a profile, as one line of JSON.
import fs from "node:fs";
import zlib from "node:zlib";
import { createRequire } from "node:module";

const { Profile } = createRequire(process.argv[2] + "/")("pprof-format");
const profile = Profile.decode(zlib.gunzipSync(fs.readFileSync(process.argv[3])));
const text = (at) => profile.stringTable.strings[Number(at)];
const functions = new Map(profile.function.map((one) => [Number(one.id), text(one.name)]));
const locations = new Map(profile.location.map((one) => [Number(one.id), functions.get(Number(one.line[0].functionId))]));
const kinds = profile.sampleType.map((one) => [text(one.type), text(one.unit)]);
const sums = kinds.map((_, at) => profile.sample.reduce((sum, one) => sum + Number(one.value[at]), 0));
const stacks = profile.sample.map((one) => one.locationId.map((id) => locations.get(Number(id))));
console.log(JSON.stringify({ kinds, sums, stacks }));
