// What views are made of: elements, numbers for people, charts on a canvas. Whatever comes from the server becomes text,
// never markup.

export function h(tag, props, ...kids) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name === "value" || name === "checked" || name === "hidden" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  add(element, kids);
  return element;
}

export function add(element, kids) {
  for (const kid of kids.flat(4)) {
    if (kid === undefined || kid === null || kid === false) continue;
    element.append(kid instanceof Node ? kid : String(kid));
  }
}

export function fill(element, ...kids) {
  element.textContent = "";
  add(element, kids);
}

export function card(size, title, note, ...kids) {
  return h("section", { class: "card " + size }, title && h("header", {}, h("h2", {}, title), note && h("span", { class: "note" }, note)), ...kids);
}

// Numbers.

export function count(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return (value / 1e9).toFixed(2) + " G";
  if (size >= 1e6) return (value / 1e6).toFixed(2) + " M";
  if (size >= 1e4) return (value / 1e3).toFixed(1) + " k";
  if (size >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString("en");
  return value.toFixed(size >= 10 ? 1 : 2);
}

export function bytes(value) {
  if (!Number.isFinite(value)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let size = value, unit = 0;
  while (Math.abs(size) >= 1024 && unit < units.length - 1) { size /= 1024; unit += 1; }
  return (unit === 0 ? Math.round(size) : size.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2)) + " " + units[unit];
}

export function micros(value) {
  if (!Number.isFinite(value) || value === null) return "–";
  if (value < 1000) return (value < 10 ? value.toFixed(1) : Math.round(value)) + " µs";
  if (value < 1e6) return (value / 1e3).toFixed(value < 1e4 ? 2 : 1) + " ms";
  return (value / 1e6).toFixed(2) + " s";
}

export function percent(value, digits = 1) {
  return Number.isFinite(value) ? (value * 100).toFixed(digits) + " %" : "–";
}

export function span(seconds) {
  if (!Number.isFinite(seconds) || seconds < 0) return "–";
  const s = Math.floor(seconds);
  if (s < 60) return s + " s";
  if (s < 3600) return Math.floor(s / 60) + " min " + (s % 60) + " s";
  if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor((s % 3600) / 60) + " min";
  return Math.floor(s / 86400) + " d " + Math.floor((s % 86400) / 3600) + " h";
}

export function clock(unix) {
  const at = new Date(unix * 1000), two = (n) => String(n).padStart(2, "0");
  return two(at.getHours()) + ":" + two(at.getMinutes()) + ":" + two(at.getSeconds());
}

// Bytes as text: UTF-8 where it is, escapes where it is not, and always short enough to show.

export function raw(base64) {
  const text = atob(base64), all = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at += 1) all[at] = text.charCodeAt(at);
  return all;
}

export function show(base64, most = 400) {
  const all = raw(base64), part = all.subarray(0, most);
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(part, { stream: part.length < all.length });
  } catch {
    text = Array.from(part, (one) => (one >= 32 && one < 127 ? String.fromCharCode(one) : "\\x" + one.toString(16).padStart(2, "0"))).join("");
  }
  // eslint-disable-next-line no-control-regex
  text = text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, (one) => "\\u" + one.charCodeAt(0).toString(16).padStart(4, "0"));
  return all.length > most ? text + " … (" + bytes(all.length) + ")" : text;
}

// Canvas.

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

function sheet(canvas) {
  const scale = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = "11px system-ui, sans-serif";
  return { pen, width, height };
}

export function spark(canvas, values, name = "c1") {
  const { pen, width, height } = sheet(canvas);
  if (values.length < 2 || width < 4) return;
  const top = Math.max(...values, 1e-9), step = width / (values.length - 1);
  pen.beginPath();
  values.forEach((value, at) => pen.lineTo(at * step, height - 2 - (value / top) * (height - 5)));
  pen.strokeStyle = colour(name);
  pen.lineWidth = 1.6;
  pen.stroke();
  pen.lineTo(width, height);
  pen.lineTo(0, height);
  pen.globalAlpha = 0.13;
  pen.fillStyle = colour(name);
  pen.fill();
  pen.globalAlpha = 1;
}

function niceTop(value) {
  if (!(value > 0)) return 4;
  const base = 10 ** Math.floor(Math.log10(value));
  for (const step of [1, 2, 2.5, 5, 10]) if (value <= step * base) return step * base;
  return 10 * base;
}

const LEFT = 68, BOTTOM = 18;

// Lines over time: `series` is [{name, colour, values, fill}], `times` in seconds since 1970.
export function lines(canvas, times, series, format = count, limit) {
  const { pen, width, height } = sheet(canvas);
  if (width < 40) return;
  let most = 0;
  for (const one of series) for (const value of one.values) if (value > most) most = value;
  if (limit && limit < most * 4) most = Math.max(most, limit);
  const top = niceTop(most), plot = width - LEFT - 6, tall = height - BOTTOM - 6;
  const y = (value) => 6 + tall - (Math.min(value, top) / top) * tall;
  const x = (at) => LEFT + (times.length < 2 ? 0 : (at / (times.length - 1)) * plot);
  pen.fillStyle = colour("soft");
  pen.strokeStyle = colour("grid");
  pen.lineWidth = 1;
  pen.textAlign = "right";
  for (let part = 0; part <= 4; part += 1) {
    const value = (top * part) / 4;
    pen.beginPath();
    pen.moveTo(LEFT, Math.round(y(value)) + 0.5);
    pen.lineTo(width - 6, Math.round(y(value)) + 0.5);
    pen.stroke();
    if (part % 2 === 0) pen.fillText(format(value), LEFT - 7, y(value) + 4);
  }
  timeAxis(pen, times, x, height);
  for (const one of series) {
    if (one.values.length === 0) continue;
    pen.beginPath();
    one.values.forEach((value, at) => pen.lineTo(x(at), y(value)));
    pen.strokeStyle = colour(one.colour);
    pen.lineWidth = 1.7;
    pen.lineJoin = "round";
    pen.stroke();
    if (one.fill) {
      pen.lineTo(x(one.values.length - 1), y(0));
      pen.lineTo(x(0), y(0));
      pen.globalAlpha = 0.11;
      pen.fillStyle = colour(one.colour);
      pen.fill();
      pen.globalAlpha = 1;
    }
  }
  if (limit && limit <= top) {
    pen.setLineDash([5, 4]);
    pen.strokeStyle = colour("bad");
    pen.beginPath();
    pen.moveTo(LEFT, y(limit));
    pen.lineTo(width - 6, y(limit));
    pen.stroke();
    pen.setLineDash([]);
  }
  canvas.plotted = { times, series, format, left: LEFT, plot };
}

function timeAxis(pen, times, x, height) {
  pen.textAlign = "center";
  pen.fillStyle = colour("soft");
  if (times.length < 2) return;
  const marks = Math.max(2, Math.min(6, Math.floor((x(times.length - 1) - x(0)) / 110)));
  for (let mark = 0; mark <= marks; mark += 1) {
    const at = Math.round(((times.length - 1) * mark) / marks);
    pen.textAlign = mark === 0 ? "left" : mark === marks ? "right" : "center";
    pen.fillText(clock(times[at]).slice(0, times[times.length - 1] - times[0] > 7200 ? 5 : 8), x(at), height - 4);
  }
}

// Limits of the rows of latency, in microseconds.
export const LIMITS = Array.from({ length: 26 }, (_, at) => Math.floor((2 ** (at + 10) + 2 ** (at + 3) - 1) / 1000));
const FIRST = 0, LAST = 20;

// How long commands took: time to the right, latency upwards, the darker the more.
export function heat(canvas, frames) {
  const { pen, width, height } = sheet(canvas);
  if (width < 40) return;
  const rows = LAST - FIRST + 1, plot = width - LEFT - 6, tall = height - BOTTOM - 6;
  const columns = Math.min(frames.length, Math.max(1, Math.floor(plot / 3)));
  const cells = [], row = tall / rows, wide = plot / Math.max(columns, 1);
  let most = 0;
  for (let column = 0; column < columns; column += 1) {
    const from = Math.floor((column * frames.length) / columns), to = Math.max(from + 1, Math.floor(((column + 1) * frames.length) / columns));
    const sum = new Array(rows).fill(0);
    for (let at = from; at < to; at += 1) frames[at].l.forEach((value, of) => { sum[Math.min(of, LAST) - FIRST] += value; });
    for (const value of sum) if (value > most) most = value;
    cells.push({ t: frames[from].t, sum });
  }
  const ink = colour("c1"), late = colour("c3"), worst = colour("bad"), high = Math.log1p(most) || 1;
  cells.forEach((cell, column) => cell.sum.forEach((value, at) => {
    if (value === 0) return;
    pen.globalAlpha = 0.14 + 0.86 * (Math.log1p(value) / high);
    pen.fillStyle = at >= 14 ? worst : at >= 10 ? late : ink;
    pen.fillRect(LEFT + column * wide, 6 + tall - (at + 1) * row, Math.max(wide - 0.4, 1), row - 1);
  }));
  pen.globalAlpha = 1;
  pen.fillStyle = colour("soft");
  pen.textAlign = "right";
  for (const at of [0, 4, 7, 10, 13, 17, 20]) pen.fillText((at === LAST ? "> " : "") + micros(LIMITS[at === LAST ? at - 1 : at]), LEFT - 6, 6 + tall - (at + 1) * row + row / 2 + 4);
  timeAxis(pen, cells.map((cell) => cell.t), (at) => LEFT + (at + 0.5) * wide, height);
  canvas.cells = { cells, left: LEFT, wide, row, tall, rows };
}

export const SLOT_COLOURS = ["c1", "c2", "c3", "c5", "c7", "c4"];

// A map of all hash slots, by row: whose they are, as numbers from 0 on; -1 for nobody, and what moves stands out.
export function slots(canvas, owners, moving) {
  const columns = 256, rows = 64, of = canvas.getContext("2d"), size = canvas.width / columns;
  const names = SLOT_COLOURS.map(colour);
  of.clearRect(0, 0, canvas.width, canvas.height);
  for (let slot = 0; slot < columns * rows; slot += 1) {
    const owner = owners[slot];
    if (owner < 0 && !moving.has(slot)) continue;
    of.fillStyle = moving.has(slot) ? colour("ink") : names[owner % names.length];
    of.fillRect((slot % columns) * size, Math.floor(slot / columns) * size, size, size);
  }
}

export function hover(canvas) {
  let tip;
  const hide = () => { if (tip) tip.remove(); tip = undefined; };
  canvas.addEventListener("pointerleave", hide);
  canvas.addEventListener("pointermove", (event) => {
    const text = canvas.cells ? atCell(canvas.cells, event) : canvas.plotted ? atPoint(canvas.plotted, event) : "";
    if (!text) return hide();
    if (!tip) document.body.append(tip = h("div", { class: "tip" }));
    tip.textContent = text;
    tip.style.left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8) + "px";
    tip.style.top = event.clientY + 16 + "px";
  });
  return hide;
}

function atCell(of, event) {
  const column = Math.floor((event.offsetX - of.left) / of.wide), at = Math.floor((6 + of.tall - event.offsetY) / of.row);
  const cell = of.cells[column];
  if (!cell || at < 0 || at >= of.rows) return "";
  const low = at === 0 ? 0 : LIMITS[at - 1];
  return clock(cell.t) + "\n" + micros(low) + " to " + (at === of.rows - 1 ? "…" : micros(LIMITS[at])) + ": " + count(cell.sum[at]) + " commands";
}

function atPoint(of, event) {
  const at = Math.round(((event.offsetX - of.left) / of.plot) * (of.times.length - 1));
  if (!(at >= 0) || at >= of.times.length) return "";
  return [clock(of.times[at]), ...of.series.map((one) => one.name + "  " + of.format(one.values[at] ?? NaN))].join("\n");
}

// The time within which a share of the commands of some frames was done, in microseconds.
export function quantile(rows, share) {
  let all = 0, seen = 0;
  for (const value of rows) all += value;
  if (all === 0) return NaN;
  for (let at = 0; at < rows.length; at += 1) {
    seen += rows[at];
    if (seen >= all * share) {
      const low = at === 0 ? 0 : LIMITS[at - 1], high = LIMITS[Math.min(at, 25)], inside = rows[at] ? (all * share - (seen - rows[at])) / rows[at] : 1;
      return low + (high - low) * inside;
    }
  }
  return LIMITS[25];
}

// A table that sorts by its heads: `columns` is [{name, of, text, number}].
export function table(columns, options = {}) {
  let rows = [], by = options.by ?? 0, down = options.down ?? true;
  const body = h("tbody"), head = h("tr");
  const element = h("table", { "aria-label": options.label }, h("thead", {}, head), body);
  const draw = () => {
    fill(head, columns.map((column, at) => h("th", { class: column.number && "n", scope: "col", "aria-sort": at === by ? (down ? "descending" : "ascending") : undefined },
      column.of ? h("button", { type: "button", onclick: () => { down = at === by ? !down : !!column.number; by = at; draw(); } }, column.name + (at === by ? (down ? " ↓" : " ↑") : "")) : column.name)));
    const of = columns[by].of, sorted = of ? [...rows].sort((a, b) => { const one = of(a), two = of(b); const sign = one < two ? -1 : one > two ? 1 : 0; return down ? -sign : sign; }) : rows;
    fill(body, sorted.slice(0, options.most ?? 500).map((row) => h("tr", { class: options.pick && "pick", tabindex: options.pick && "0",
      onclick: options.pick && (() => options.pick(row)), onkeydown: options.pick && ((event) => { if (event.key === "Enter") options.pick(row); }) },
      columns.map((column) => h("td", { class: (column.number ? "n " : "") + (column.class || "") }, column.text ? column.text(row) : column.of(row))))));
    if (rows.length === 0) fill(body, h("tr", {}, h("td", { colspan: String(columns.length), class: "empty" }, options.empty || "Nothing yet.")));
  };
  draw();
  return { element, set(all) { rows = all; draw(); } };
}
