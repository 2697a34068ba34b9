// Keys: the hot and the big ones, and a browser that says how much of the keyspace it has seen.

import { h, add, fill, card, table, count, bytes, percent, span, show, raw } from "./draw.js";
import { ask, run, info, confirm, say, value } from "./app.js";

const TYPES = ["", "string", "list", "hash", "set", "zset", "stream"];
const SHOWN = 2000;
const PIECE = 512 * 1024;

// `db=0,key="a,b",type=string,bytes=5`: the key is quoted where it has to be.
function fields(text) {
  const of = {};
  const found = text.matchAll(/(\w+)=("(?:[^"\\]|\\.)*"|[^,]*)(?:,|$)/g);
  for (const [, name, value] of found) of[name] = value;
  return of;
}

const short = (text) => (text.length > 120 ? text.slice(0, 120) + "…" : text);
const left = (ms) => (ms === null || ms === undefined ? "–" : ms < 0 ? "no deadline" : span(ms / 1000));

export function keys(root) {
  const hot = table([{ name: "hot key", of: (r) => short(r.key), class: "key" }, { name: "db", number: true, of: (r) => Number(r.db) }, { name: "calls/s", number: true, of: (r) => Number(r.calls_per_sec), text: (r) => count(Number(r.calls_per_sec)) }, { name: "share", number: true, of: (r) => Number(r.percent), text: (r) => percent(Number(r.percent) / 100) }], { by: 2, label: "Hot keys", empty: "No key stands out yet." });
  const big = table([{ name: "big key", of: (r) => short(r.key), class: "key" }, { name: "db", number: true, of: (r) => Number(r.db) }, { name: "type", of: (r) => r.type }, { name: "memory", number: true, of: (r) => Number(r.bytes), text: (r) => bytes(Number(r.bytes)) }], { by: 3, label: "Big keys", empty: "None was looked at yet." });
  const samples = h("span");
  const stopped = poll(hot, big, samples);

  const state = { cursor: "0", seen: 0, keys: [], db: 0, busy: false, begun: false };
  const pattern = h("input", { class: "wide mono", placeholder: "pattern, such as user:*", "aria-label": "Pattern" });
  const type = h("select", { "aria-label": "Type" }, TYPES.map((one) => h("option", { value: one }, one || "any type")));
  const db = h("input", { type: "number", min: "0", value: "0", "aria-label": "Database", size: "4" });
  const split = h("input", { class: "mono", value: ":", size: "2", "aria-label": "Delimiter of the tree" });
  const bar = h("i"), meter = h("span", { class: "meter" }, bar), told = h("b", {}, "nothing of the keyspace seen yet");
  bar.style.width = "0";
  const next = h("button", { type: "button", hidden: true, onclick: () => step() }, "Next step");
  const all = h("button", { type: "button", hidden: true, onclick: () => go_on() }, "Go on until 1,000 more");
  const out = h("div", { class: "scroll" }), value_place = h("div", {}, h("p", { class: "empty" }, "Choose a key."));
  let as_tree = true;
  const seg = h("div", { class: "seg", role: "group", "aria-label": "Form" }, ["Tree", "List"].map((name, at) => h("button", { type: "button", "aria-pressed": String(at === 0), onclick: (event) => { as_tree = at === 0; for (const one of seg.children) one.setAttribute("aria-pressed", String(one === event.target)); draw(); } }, name)));

  const list = table([{ name: "key", of: (r) => r.name, class: "key" }, { name: "type", of: (r) => r.type || "" }, { name: "memory", number: true, of: (r) => r.bytes || 0, text: (r) => bytes(r.bytes ?? NaN) }, { name: "lives", number: true, of: (r) => r.ttl_ms ?? -1, text: (r) => left(r.ttl_ms) }], { by: 2, label: "Keys found", most: SHOWN, pick: (row) => open(row) });

  const begin = async (event) => {
    if (event) event.preventDefault();
    Object.assign(state, { cursor: "0", seen: 0, keys: [], db: Number(db.value) || 0, begun: true });
    await step();
  };
  const step = async () => {
    if (state.busy) return;
    state.busy = true;
    try {
      const of = await ask("api/keys", { db: state.db, cursor: state.cursor, pattern: pattern.value, type: type.value, count: 500 });
      state.cursor = of.cursor;
      state.seen = of.cursor === "0" ? 1 : of.seen;
      state.size = of.size;
      for (const key of of.keys) state.keys.push({ ...key, name: show(key.key) });
      state.done = of.cursor === "0";
      draw();
    } catch (error) { state.done = true; say(error.message); } finally { state.busy = false; }
  };
  const go_on = async () => {
    const until = state.keys.length + 1000;
    for (let turns = 0; turns < 400 && !state.done && state.keys.length < until && root.contains(out); turns += 1) await step();
  };
  const draw = () => {
    bar.style.width = state.seen * 100 + "%";
    told.textContent = percent(state.seen, state.seen < 0.1 ? 1 : 0) + " of the keyspace seen · " + count(state.keys.length) + " keys found" + (state.size === null || state.size === undefined ? "" : " of " + count(state.size) + " in the database");
    next.hidden = all.hidden = state.done || !state.begun;
    if (as_tree) fill(out, tree(state.keys, split.value, open)); else { list.set(state.keys); fill(out, list.element); }
  };
  const open = (row) => show_value(value_place, state.db, row, () => { state.keys = state.keys.filter((one) => one !== row); draw(); });

  add(root, [h("div", { class: "head" }, h("h1", {}, "Keys"), samples), h("div", { class: "grid" },
    card("w6", "Asked for most", "HOTKEYS, always on", h("div", { class: "scroll short" }, hot.element)), card("w6", "Taking most memory", "of those looked at", h("div", { class: "scroll short" }, big.element)),
    card("w7", "Browse", "nothing is scanned by itself", h("form", { class: "row", onsubmit: begin }, pattern, type, h("label", { class: "row note" }, "db ", db), h("label", { class: "row note" }, "split at ", split), h("button", { class: "main", type: "submit" }, "Look")),
      h("p", { class: "row" }, meter, told), h("div", { class: "row" }, seg, next, all), out), card("w5", "Value", null, value_place))]);
  fill(out, h("p", { class: "empty" }, "A step looks at 500 keys at most, and says how much it has seen."));
  return { stop: stopped };
}

function poll(hot, big, samples) {
  let timer, is_over = false;
  const turn = async () => {
    try {
      const of = (await info("hotkeys")).Hotkeys || {};
      const of_kind = (kind) => Object.entries(of).filter(([name]) => name.startsWith(kind)).map(([, text]) => fields(String(text)));
      hot.set(of_kind("hot_key_"));
      big.set(of_kind("big_key_"));
      fill(samples, h("span", { class: "note" }, count(of.hot_keys_samples || 0) + " requests looked at in " + span(of.hot_keys_seconds || 0)));
    } catch (error) { if (!is_over) say(error.message); }
    if (!is_over) timer = setTimeout(turn, 3000);
  };
  turn();
  return () => { is_over = true; clearTimeout(timer); };
}

// Keys by their parts; a branch is filled when it is opened.
function tree(all, sign, open) {
  const shown = all.slice(0, 20000);
  return h("div", { class: "tree" }, level(shown, "", sign, open), all.length > shown.length && h("p", { class: "note" }, "20,000 are shown"), all.length === 0 && h("p", { class: "empty" }, "No key yet."));
}

function level(rows, prefix, sign, open) {
  const branches = new Map(), leaves = [];
  for (const row of rows) {
    const rest = row.name.slice(prefix.length), at = sign ? rest.indexOf(sign) : -1;
    if (at < 0) leaves.push(row); else {
      const name = rest.slice(0, at + sign.length);
      if (!branches.has(name)) branches.set(name, []);
      branches.get(name).push(row);
    }
  }
  const sum = (of) => of.reduce((total, row) => total + (row.bytes || 0), 0);
  const sorted = [...branches].sort((a, b) => sum(b[1]) - sum(a[1])).slice(0, 500);
  return [sorted.map(([name, of]) => {
    const branch = h("details", {}, h("summary", {}, h("span", { class: "key" }, name), " ", h("span", { class: "note" }, count(of.length) + " keys, " + bytes(sum(of)))));
    branch.addEventListener("toggle", () => { if (branch.open && branch.children.length === 1) add(branch, level(of, prefix + name, sign, open)); });
    return branch;
  }), leaves.slice(0, SHOWN).map((row) => h("button", { type: "button", class: "leaf", onclick: () => open(row) }, h("span", { class: "key" }, row.name), h("span", { class: "tag" }, row.type || "?"), h("span", { class: "note" }, bytes(row.bytes ?? NaN)))), leaves.length > SHOWN && h("p", { class: "note" }, count(leaves.length - SHOWN) + " more are not shown")];
}

async function show_value(place, db, row, gone) {
  fill(place, h("p", { class: "empty" }, "…"));
  const pages = h("div"), more = h("button", { type: "button", hidden: true }, "Next page");
  let from = "0", is_first = true;
  const load = async () => {
    try {
      const of = await ask("api/value", { db, key: row.key, from });
      if (of.type === "none") { fill(place, h("p", { class: "empty" }, "The key is gone.")); return; }
      if (is_first) fill(place, about(db, row, of, gone), pages, more);
      is_first = false;
      from = page(pages, of, from);
      more.hidden = from === null;
    } catch (error) { fill(place, h("p", { class: "empty" }, error.message)); }
  };
  more.addEventListener("click", load);
  await load();
}

function about(db, row, of, gone) {
  const args = (...more) => ({ args: more.map((one) => (one === row ? { b64: row.key } : one)), db });
  const remove = async () => {
    if (!(await confirm("Delete the key", show(row.key), "Delete"))) return;
    try { value((await ask("api/command", args("UNLINK", row))).reply); gone(); say("The key is deleted."); } catch (error) { say(error.message); }
  };
  const expire = async () => {
    const seconds = window.prompt("Seconds to live; empty for no deadline", of.ttl_ms > 0 ? String(Math.ceil(of.ttl_ms / 1000)) : "");
    if (seconds === null) return;
    try { value((await ask("api/command", seconds.trim() === "" ? args("PERSIST", row) : args("EXPIRE", row, seconds.trim()))).reply); say("Done."); } catch (error) { say(error.message); }
  };
  const save = async () => {
    try {
      // In pieces: a reply has a largest size, and the page has other things to do.
      const pieces = [];
      for (let at = 0; at < of.length; at += PIECE) pieces.push(raw((await ask("api/command", args("GETRANGE", row, String(at), String(at + PIECE - 1)))).reply.bulk));
      const url = URL.createObjectURL(new Blob(pieces));
      const link = h("a", { href: url, download: "value.bin" });
      link.click();
      setTimeout(() => URL.revokeObjectURL(url), 5000);
    } catch (error) { say(error.message); }
  };
  return [h("p", { class: "key" }, show(row.key)), h("dl", { class: "facts" }, [["type", of.type], ["encoding", of.encoding || "–"], ["length", count(of.length ?? NaN)], ["memory", bytes(of.bytes ?? NaN)], ["lives", left(of.ttl_ms)]].map(([name, text]) => [h("dt", {}, name), h("dd", {}, text)])),
    h("p", { class: "row" }, of.type === "string" && h("button", { type: "button", class: "small", onclick: save }, "Download"), h("button", { type: "button", class: "small", onclick: expire }, "Set deadline"), h("button", { type: "button", class: "small danger", onclick: remove }, "Delete"))];
}

// Shows one page; where the next one begins, or nothing.
function page(place, of, from) {
  const tree = of.page || {};
  if (tree.error) { fill(place, h("p", { class: "bad" }, tree.error)); return null; }
  const text = (one) => (one.bulk !== undefined ? show(one.bulk, 2000) : String(Object.values(one)[0]));
  const rows = (names, all) => place.append(h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, all.map((cells) => h("tr", {}, cells.map((cell) => h("td", { class: "key" }, cell))))))));
  const first = Number(from) || 0, pairs = (all) => all.reduce((sum, one, at) => { if (at % 2 === 0) sum.push([text(one)]); else sum[sum.length - 1].push(text(one)); return sum; }, []);
  switch (of.type) {
    case "string":
      add(place, [h("div", { class: "scroll" }, h("pre", {}, show(tree.bulk, 65536))), of.length > 65536 && h("p", { class: "note" }, "the first 64 KiB of " + bytes(of.length))]);
      return null;
    case "list":
      rows(["index", "element"], tree.array.map((one, at) => [String(first + at), text(one)]));
      return first + 256 < of.length ? String(first + 256) : null;
    case "zset":
      rows(["member", "score"], tree.array.map((one) => (one.array ? one.array.map(text) : [text(one), ""])));
      return first + 256 < of.length ? String(first + 256) : null;
    case "hash": case "set": {
      const [cursor, all] = tree.array;
      rows(of.type === "hash" ? ["field", "value"] : ["member"], of.type === "hash" ? (all.map ? all.map.map((pair) => pair.map(text)) : pairs(all.array)) : (all.array || all.set).map((one) => [text(one)]));
      return text(cursor) === "0" ? null : text(cursor);
    }
    case "stream": {
      const all = tree.array;
      rows(["id", "fields"], all.map((entry) => [text(entry.array[0]), pairs(entry.array[1].array || []).map(([name, one]) => name + "=" + one).join("  ")]));
      return all.length === 256 ? text(all[all.length - 1].array[0]) : null;
    }
    default:
      fill(place, h("p", { class: "empty" }, "A value of this type is not shown."));
      return null;
  }
}
