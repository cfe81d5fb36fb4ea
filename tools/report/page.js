// Draws everything from the JSON above: no library, nothing fetched.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const kernels = new Map(data.kernels.map((k) => [k.name, k]));
const at = (id) => document.getElementById(id);
const us = (x) => (x === null || x === undefined ? "-" : x >= 100 ? x.toFixed(0) : x.toFixed(2));
// One colour for a kernel in all batch variants, neighbours far apart on the wheel.
const base = (name) => name.replace(/_\d+x\d+$/, "");
const hues = new Map();
for (const k of data.kernels) if (!hues.has(base(k.name))) hues.set(base(k.name), (hues.size * 137.5) % 360);
const colour = (name) => `hsl(${hues.get(base(name)) ?? 0} 50% 58%)`;
const time = (k) => Math.max(k.measured_us ?? k.floor_us ?? 0, 0); // a difference of noisy steps may be negative

function element(name, attributes, text) {
  const svg = ["svg", "g", "rect", "circle", "line", "path", "text", "title"].includes(name);
  const e = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) e.setAttribute(key, value);
  if (text !== undefined) e.textContent = text;
  return e;
}
function add(parent, ...rest) { const e = element(...rest); parent.append(e); return e; }
function clear(id) { at(id).replaceChildren(); return at(id); }
function link(parent, text, target) { return add(parent, "a", { href: "#" + target }, text); }

// Launches of a variant's whole step: kernel name -> how many.
function launches(variant) {
  const count = new Map();
  for (const part of variant.parts)
    for (const op of part.operations)
      if (op.kernel) count.set(op.kernel, (count.get(op.kernel) || 0) + part.layers);
  return count;
}

function drawBar(variant) {
  const box = clear("bar"), count = launches(variant);
  const rows = [...count].map(([name, n]) => [name, n, n * time(kernels.get(name))]).sort((a, b) => b[2] - a[2]);
  const total = rows.reduce((sum, r) => sum + r[2], 0);
  at("step-note").textContent = `${variant.step.nodes} nodes, ${variant.step.critical} on the critical path, ${variant.step.exchanges} exchanges; sum of ` +
    `${data.measured ? "measured" : "floor"} times ${us(total)} us. Widths are shares of it.`;
  const shown = rows.slice(0, 14), svg = add(box, "svg", { viewBox: `0 0 1100 ${shown.length * 20 + 40}`, role: "img" });
  let x = 0;
  for (const [name, n, t] of rows) {
    const w = total ? (t / total) * 1100 : 0;
    const rect = add(svg, "rect", { x, y: 0, width: Math.max(w, 0.3), height: 26, fill: colour(name) });
    add(rect, "title", {}, `${name}: ${n} launches, ${us(t)} us`);
    x += w;
  }
  shown.forEach(([name, n, t], i) => {
    const y = 50 + i * 20;
    add(svg, "rect", { x: 0, y: y - 10, width: 12, height: 12, fill: colour(name) });
    add(svg, "text", { x: 20, y }, name);
    add(svg, "text", { x: 420, y, "text-anchor": "end" }, `${n} x`);
    add(svg, "text", { x: 520, y, "text-anchor": "end" }, `${us(t)} us`);
    add(svg, "text", { x: 600, y, "text-anchor": "end" }, total ? `${((100 * t) / total).toFixed(1)} %` : "");
  });
}

// Start and end of each operation of a part: streams run on their own between fork and join.
function schedule(part) {
  const clock = {}, boxes = [];
  for (const op of part.operations) {
    const s = op.stream, now = clock[s] || 0;
    if (op.op === "fork") clock[s] = clock[0] || 0;
    else if (op.op === "join") clock[0] = Math.max(clock[0] || 0, now);
    else {
      const length = Math.max(op.kernel ? time(kernels.get(op.kernel)) : 0, 0.25);
      boxes.push({ op, from: now, to: now + length, lane: s ? 1 : 0 });
      clock[s] = now + length;
    }
  }
  return boxes;
}

function drawTimeline(variant) {
  const box = clear("timeline");
  for (const part of variant.parts) {
    const boxes = schedule(part);
    if (!boxes.length) continue;
    const end = Math.max(...boxes.map((b) => b.to)), scale = 1090 / end;
    add(box, "h3", {}, `${part.name}: ${part.layers} x ${us(part.measured_us ?? part.floor_us)} us, ${part.nodes} nodes, ${part.critical} critical, ${part.exchanges} exchanges`);
    const svg = add(box, "svg", { viewBox: "0 0 1100 58", role: "img" });
    for (const b of boxes) {
      const name = b.op.kernel || b.op.collective, y = b.lane ? 30 : 2, w = Math.max((b.to - b.from) * scale - 1, 1);
      const group = add(svg, "g", {});
      add(group, "rect", { x: b.from * scale, y, width: w, height: 24, fill: colour(name), stroke: b.op.exchange ? "var(--mark)" : "none", "stroke-width": 2 });
      add(group, "title", {}, `${name}: ${us(b.to - b.from)} us`);
      const label = base(name);
      if (w > label.length * 6.2) add(group, "text", { x: b.from * scale + 4, y: y + 16, class: "label" }, label);
    }
  }
}

function drawRoof(variant) {
  const box = clear("roof"), c = data.ceilings;
  if (!c) { at("roof-note").textContent = "The directory was generated without a table of tactics, so the GPU's ceilings are not known."; return; }
  at("roof-note").textContent = `${c.read_gb_s} GB/s and ${c.bf16_tflops} bf16 TFLOP/s. A point is a kernel at its ${data.measured ? "measured speed" : "floor"}; ` +
    "the bigger, the more time it takes in the step.";
  const width = 1100, height = 380, left = 60, bottom = 340, count = launches(variant);
  const lx = (i) => left + ((Math.log10(i) + 2) / 6) * (width - left - 20), ly = (t) => bottom - ((Math.log10(t) + 3) / 6.3) * (bottom - 15);
  const svg = add(box, "svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  for (let d = -2; d <= 4; d++) {
    add(svg, "line", { x1: lx(10 ** d), x2: lx(10 ** d), y1: 15, y2: bottom, class: "axis" });
    add(svg, "text", { x: lx(10 ** d), y: bottom + 16, "text-anchor": "middle", class: "dim" }, String(10 ** d));
  }
  for (let d = -3; d <= 3; d++) {
    add(svg, "line", { x1: left, x2: width - 20, y1: ly(10 ** d), y2: ly(10 ** d), class: "axis" });
    add(svg, "text", { x: left - 6, y: ly(10 ** d) + 4, "text-anchor": "end", class: "dim" }, String(10 ** d));
  }
  add(svg, "text", { x: (left + width) / 2, y: height - 6, "text-anchor": "middle", class: "dim" }, "operations a byte");
  add(svg, "text", { x: 8, y: 12, class: "dim" }, "TFLOP/s");
  const ridge = (c.bf16_tflops * 1e3) / c.read_gb_s;
  add(svg, "path", { class: "roof", d: `M${lx(0.01)},${ly((0.01 * c.read_gb_s) / 1e3)} L${lx(ridge)},${ly(c.bf16_tflops)} L${lx(1e4)},${ly(c.bf16_tflops)}` });
  for (const [name, n] of count) {
    const k = kernels.get(name), t = time(k);
    if (!k.bytes || !k.operations || !t) continue;
    const x = lx(Math.min(Math.max(k.operations / k.bytes, 0.01), 1e4)), y = ly(Math.max(k.operations / t / 1e6, 1e-3));
    const point = add(svg, "circle", { cx: x, cy: y, r: 3 + 2 * Math.log10(1 + n * t), fill: colour(name), "fill-opacity": 0.75 });
    add(point, "title", {}, `${name}: ${(k.operations / k.bytes).toFixed(2)} operations a byte, ${us(t)} us, ${n} launches`);
  }
}

const columns = [
  ["kernel", (k) => k.name], ["grid", (k) => k.grid.filter((g, i) => !i || g > 1).join("x")], ["block", (k) => k.block], ["registers", (k) => k.registers],
  ["spills", (k) => k.spill_bytes], ["static", (k) => k.static_shared], ["dynamic", (k) => k.dynamic_shared], ["blocks/SM", (k) => k.blocks_per_multiprocessor],
  ["MB", (k) => k.bytes / 1e6], ["MFLOP", (k) => k.operations / 1e6], ["floor us", (k) => k.floor_us], ["measured us", (k) => k.measured_us ?? null],
  ["of floor", (k) => (k.measured_us ? (k.measured_floor_us ?? k.floor_us) / k.measured_us : null)], ["predicted us", (k) => k.predicted_us ?? null],
];
let order = [0, 1];
function drawTable(variant) {
  const box = clear("table"), count = launches(variant);
  const shown = columns.filter(([title]) => data.measured || !["measured us", "of floor", "predicted us"].includes(title));
  const table = add(add(box, "div", { class: "wide" }), "table", {}), head = add(add(table, "thead", {}), "tr", {});
  shown.forEach(([title], i) => add(head, "th", {}, title).addEventListener("click", () => { order = [i, order[0] === i ? -order[1] : 1]; drawTable(variant); }));
  const rows = [...count.keys()].map((name) => kernels.get(name));
  const value = shown[order[0]][1];
  rows.sort((a, b) => { const x = value(a), y = value(b); return order[1] * (typeof x === "string" ? x.localeCompare(y) : (x ?? -1) - (y ?? -1)); });
  const body = add(table, "tbody", {});
  for (const k of rows) {
    const row = add(body, "tr", {});
    shown.forEach(([title, get], i) => {
      const cell = add(row, "td", {}), x = get(k);
      if (!i) link(cell, x, "kernel-" + k.name);
      else cell.textContent = x === null ? "-" : typeof x === "number" && !Number.isInteger(x) ? us(x) : x;
    });
  }
}

const words = /(\/\/[^\n]*)|\b(struct|static|constexpr|const|int|float|void|extern|template|class|if|else|for|return|using|typename|__global__|__device__|bf16|u8|u32|u64|i64|e4m3|local|function|end|then|do|not|and|or|nil|true|false)\b|\b(\d[\w.]*)\b/g;
function highlight(parent, line, lua) {
  let from = 0;
  const comment = lua ? line.indexOf("--") : -1, text = comment < 0 ? line : line.slice(0, comment);
  for (const m of text.matchAll(words)) {
    parent.append(text.slice(from, m.index));
    const span = add(parent, "span", { class: m[1] ? "comment" : m[2] ? "key" : "number" });
    const place = m[1] && m[1].match(/(layouts\/[\w/.-]+\.lua):(\d+)/);
    if (place && data.lua[place[1]]) {
      const [before, after] = m[1].split(place[0]);
      span.append(before); link(span, place[0], `lua-${place[1]}-${place[2]}`); span.append(after);
    } else span.textContent = m[0];
    from = m.index + m[0].length;
  }
  parent.append(text.slice(from));
  if (comment >= 0) add(parent, "span", { class: "comment" }, line.slice(comment));
}
function source(parent, text, prefix) {
  const pre = add(parent, "pre", {});
  text.replace(/\n$/, "").split("\n").forEach((line, i) => {
    const row = add(pre, "span", prefix ? { class: "row", id: `${prefix}-${i + 1}` } : { class: "row" });
    highlight(row, line, Boolean(prefix));
    if (!line) row.append(" ");
  });
}

function drawKernels() {
  const box = clear("kernels");
  for (const k of data.kernels) {
    const details = add(box, "details", { id: "kernel-" + k.name }), summary = add(details, "summary", {}, k.name);
    add(summary, "span", {}, `${k.provider} | ${k.parts.join(" ")} | floor ${us(k.floor_us)} us`);
    details.addEventListener("toggle", () => { if (details.open && !details.dataset.filled) fillKernel(details, k); });
  }
  const open = () => { const e = document.getElementById(decodeURIComponent(location.hash.slice(1))); const d = e && e.closest("details"); if (d) d.open = true; if (e) e.scrollIntoView(); };
  addEventListener("hashchange", open);
  addEventListener("beforeprint", () => document.querySelectorAll("#kernels details").forEach((d) => { d.open = true; if (!d.dataset.filled) fillKernel(d, kernels.get(d.id.slice(7))); }));
  open();
}
// What was measured when the tactic was chosen: the entry of the table of tactics.
function fillHistory(details, history) {
  const r = history.record || {}, names = (x) => Object.entries(x).filter(([key]) => key !== "median_us").map(([key, v]) => `${key}=${v}`).join(" ");
  add(details, "h3", {}, "History of tactics");
  add(details, "p", {}, `${r.gpu}, driver ${r.driver}, toolkit ${r.toolkit}, ${r.date}: ${(r.losers || []).length + 1} tactics, spread ${us(r.spread_us)} us.`);
  const table = add(add(details, "div", { class: "wide" }), "table", { class: "history" }), head = add(add(table, "thead", {}), "tr", {}), body = add(table, "tbody", {});
  for (const title of ["tactic", "median us", "of the chosen"]) add(head, "th", {}, title);
  for (const x of [{ ...history.choose[0], median_us: r.median_us }, ...(r.losers || [])]) {
    const row = add(body, "tr", {});
    add(row, "td", {}, names(x)); add(row, "td", {}, us(x.median_us)); add(row, "td", {}, r.median_us ? us(x.median_us / r.median_us) : "-");
  }
}
function fillKernel(details, k) {
  details.dataset.filled = "yes";
  add(details, "p", {}, `Tactic ${k.tactic}: ${k.tactic_origin || "origin unknown"}. ` +
    (k.registers === null ? "Not in the cache, so its registers are not known." : `${k.registers} registers, ${k.spill_bytes} bytes spilled, ${k.static_shared} + ${k.dynamic_shared} bytes of shared memory.`));
  if (k.measured_us !== null && k.measured_us !== undefined)
    add(details, "p", {}, `Measured ${us(k.measured_us)} us, floor of the bytes touched ${us(k.measured_floor_us)} us, predicted ${us(k.predicted_us)} us.` +
      (k.limit ? ` Limit: ${k.limit}.` : ""));
  add(details, "h3", {}, "Tactics in order of preference");
  add(details, "p", {}, k.tactics.join(" | "));
  if (k.history) fillHistory(details, k.history);
  add(details, "h3", {}, k.file);
  source(details, k.source || "the file is missing");
  if (k.sass) { add(details, "h3", {}, "SASS"); add(details, "pre", {}, k.sass); }
}

function drawLua() {
  const names = Object.keys(data.lua).sort();
  at("lua-section").hidden = !names.length;
  for (const name of names) {
    const details = add(at("lua"), "details", {});
    add(details, "summary", {}, name);
    source(details, data.lua[name], "lua-" + name);
  }
}

function choose(variant) {
  for (const b of at("variants").children) b.setAttribute("aria-pressed", String(b.textContent === variant.name));
  drawBar(variant); drawTimeline(variant); drawRoof(variant); drawTable(variant);
}
at("title").textContent = `${data.layout}${data.deployment ? " " + data.deployment : ""}, TP ${data.tp}, ${data.arch}`;
document.title = at("title").textContent + " - lathe inspect";
at("facts").textContent = `${data.layers} layers, ${data.kernels.length} kernels, hash ${data.hash}` +
  (data.measured ? `; measured on ${data.measured.about}; predictions within 15 %: ${data.measured.within_15_percent} of ${data.measured.kernels} kernels` : "");
for (const v of data.variants) add(at("variants"), "button", { type: "button" }, v.name).addEventListener("click", () => choose(v));
drawLua();
drawKernels();
choose(data.variants[data.variants.length > 1 ? 1 : 0]);
document.body.dataset.ready = "yes";
