// The views but the one of keys.

import { h, add, fill, card, table, count, bytes, micros, percent, span, clock, spark, lines, heat, hover, slots, quantile, show, LIMITS, SLOT_COLOURS } from "./draw.js";
import { store, ask, run, info, confirm, say, value } from "./app.js";

const every = (seconds, what) => {
  let is_over = false, timer;
  const turn = async () => {
    if (!document.hidden) { try { await what(); } catch (error) { if (!is_over) say(error.message); } }
    if (!is_over) timer = setTimeout(turn, seconds * 1000);
  };
  turn();
  return () => { is_over = true; clearTimeout(timer); };
};

const head = (title, ...more) => h("div", { class: "head" }, h("h1", {}, title), ...more);
const facts = (pairs) => h("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, of]) => [h("dt", {}, name), h("dd", {}, of)]));
const swatch = (name) => { const dot = h("span", { class: "dot" }); dot.style.background = "var(--" + name + ")"; return dot; };
const legend = (series, last) => h("div", { class: "legend" }, series.map((one) => h("span", {}, swatch(one.colour), one.name + " ", h("b", {}, last(one)))));
const parts = (text) => Object.fromEntries(String(text).split(",").map((part) => { const at = part.indexOf("="); return [part.slice(0, at), part.slice(at + 1)]; }));
const sumRows = (frames) => frames.reduce((sum, frame) => { frame.l.forEach((value, at) => { sum[at] += value; }); return sum; }, new Array(27).fill(0));

function meter(share) {
  const bar = h("i", { class: share > 0.95 ? "full" : share > 0.8 ? "hot" : "" });
  bar.style.width = Math.min(100, Math.max(0, share * 100)) + "%";
  return h("span", { class: "meter" }, bar);
}

// Overview.

export function overview(root) {
  let range = 300, fetched = null, stops = [];
  const tiles = [
    ["Requests", (f) => store.at(f, "ops"), (v) => [count(v), "/s"], "c1"],
    ["Hit rate", (f) => { const hits = store.at(f, "hits"), all = hits + store.at(f, "misses"); return all > 0 ? hits / all : NaN; }, (v) => [percent(v)], "c2"],
    ["p99 latency", (f) => quantile(f.l, 0.99), (v) => [micros(v)], "c3"],
    ["Memory", (f) => store.at(f, "used_memory"), (v) => [bytes(v)], "c4"],
    ["Keys", (f) => store.at(f, "keys"), (v) => [count(v)], "c5"],
    ["Clients", (f) => store.at(f, "clients"), (v) => [count(v)], "c7"],
  ].map(([name, of, format, colour]) => {
    const big = h("div", { class: "big" }), canvas = h("canvas", { role: "img", "aria-label": name + " of late" });
    return { of, format, colour, big, canvas, element: h("section", { class: "card tile w2" }, h("h2", {}, name), big, canvas) };
  });
  const charts = [];
  const chart = (title, size, series, format, limit, note) => {
    const canvas = h("canvas", { class: "chart", role: "img", "aria-label": title }), under = h("div");
    stops.push(hover(canvas));
    charts.push(() => {
      const frames = shown(), times = frames.map((frame) => frame.t);
      const all = series.map((one) => ({ ...one, values: frames.map((frame) => (one.of ? one.of(frame) : store.at(frame, one.key)) || 0) }));
      lines(canvas, times, all, format, limit && limit());
      fill(under, legend(all, (one) => format(one.values[one.values.length - 1])));
    });
    return card(size, title, note, canvas, under);
  };
  const shown = () => (range === 300 ? store.frames(300) : fetched ? fetched.concat(range === 3600 ? store.frames().filter((frame) => frame.t > (fetched.at(-1)?.t ?? 0)) : []) : []);
  const load = async (seconds) => {
    range = seconds;
    fetched = null;
    for (const button of segments.children) button.setAttribute("aria-pressed", String(Number(button.dataset.range) === range));
    if (seconds !== 300) { try { fetched = (await ask("api/history" + (seconds > 3600 ? "?minutes" : ""))).frames; } catch (error) { say(error.message); } }
    draw();
  };
  const segments = h("div", { class: "seg", role: "group", "aria-label": "Range" }, [[300, "5 min"], [3600, "1 h"], [86400, "24 h"]].map(([seconds, name]) => h("button", { type: "button", "data-range": String(seconds), "aria-pressed": String(seconds === 300), onclick: () => load(seconds) }, name)));
  const heatmap = h("canvas", { class: "heat", role: "img", "aria-label": "How long commands took, over time" }), under = h("div"), busy = h("div"), memory = h("div"), events = h("ul", { class: "list" }), banner = h("div");
  stops.push(hover(heatmap));
  add(root, [head("Overview", segments), banner, h("div", { class: "grid" }, tiles.map((tile) => tile.element),
    card("w8", "Latency of commands", "every command counts; the darker, the more", heatmap, under),
    card("w4", "Workers and memory", null, busy, h("br"), memory),
    chart("Requests a second", "w4", [{ name: "requests", key: "ops", colour: "c1", fill: true }, { name: "errors", key: "errors", colour: "c4" }], count),
    chart("Hits and misses a second", "w4", [{ name: "hits", key: "hits", colour: "c2", fill: true }, { name: "misses", key: "misses", colour: "c3" }], count),
    chart("Network", "w4", [{ name: "in", key: "bytes_in", colour: "c1", fill: true }, { name: "out", key: "bytes_out", colour: "c2" }], (v) => bytes(v) + "/s"),
    chart("Memory", "w4", [{ name: "in use", key: "used_memory", colour: "c1", fill: true }, { name: "resident", key: "rss", colour: "c7" }, { name: "log", key: "log_memory", colour: "c3" }], bytes, () => store.at(store.last(), "maxmemory")),
    chart("Keys that went, a second", "w4", [{ name: "expired", key: "expired", colour: "c2" }, { name: "evicted", key: "evicted", colour: "c4" }], count),
    chart("Clients", "w4", [{ name: "connected", key: "clients", colour: "c1", fill: true }, { name: "waiting", key: "blocked", colour: "c3" }, { name: "subscribed", key: "pubsub", colour: "c2" }], count),
    card("", "What happened last", "of the server log", events))]);
  const draw = () => {
    const frames = store.frames(300), last = store.last();
    for (const tile of tiles) {
      const values = frames.map(tile.of), found = values.filter(Number.isFinite), now = values.at(-1);
      const [big, unit] = tile.format(Number.isFinite(now) ? now : found.at(-1) ?? NaN);
      fill(tile.big, big, unit && h("small", {}, unit));
      spark(tile.canvas, values.map((value) => value || 0), tile.colour);
    }
    const seen = shown();
    heat(heatmap, seen);
    const rows = sumRows(seen);
    let worst = rows.length - 1;
    while (worst > 0 && rows[worst] === 0) worst -= 1;
    fill(under, h("div", { class: "legend" }, [["p50", 0.5], ["p90", 0.9], ["p99", 0.99], ["p99.9", 0.999]].map(([name, share]) => h("span", {}, name + " ", h("b", {}, micros(quantile(rows, share))))), h("span", {}, "longest below ", h("b", {}, rows[worst] ? micros(LIMITS[Math.min(worst, 25)]) : "–")), h("span", {}, h("b", {}, count(rows.reduce((a, b) => a + b, 0))), " commands")));
    for (const one of charts) one();
    if (!last) return;
    const workers = store.at(last, "workers") || 1, share = store.at(last, "busy_us") / 1e6 / workers, most = store.at(last, "maxmemory"), used = store.at(last, "used_memory");
    fill(busy, h("div", { class: "row tight" }, h("span", {}, "busy"), meter(share), h("b", {}, percent(share))),
      h("div", { class: "row tight" }, h("span", {}, "CPU"), meter((store.at(last, "cpu_sys") + store.at(last, "cpu_user")) / workers), h("b", {}, (store.at(last, "cpu_sys") + store.at(last, "cpu_user")).toFixed(2) + " cores")),
      h("div", { class: "row tight" }, h("span", {}, "of the limit"), meter(most > 0 ? used / most : 0), h("b", {}, most > 0 ? percent(used / most) : "no limit")));
    const kinds = [["data", "dataset"], ["clients", "clients_memory"], ["log", "log_memory"]], rest = Math.max(used - store.at(last, "dataset") - store.at(last, "clients_memory"), 0);
    const top = Math.max(store.at(last, "rss"), used, 1);
    fill(memory, [...kinds.map(([name, key]) => [name, store.at(last, key)]), ["index, code", rest], ["resident", store.at(last, "rss")]].map(([name, of]) => h("div", { class: "row tight" }, h("span", {}, name), meter(Math.min(of / top, 0.79)), h("b", {}, bytes(of)))));
  };
  stops.push(every(4, async () => {
    const { lines: all } = await ask("api/log?after=0");
    fill(events, all.slice(-8).reverse().map(([, line]) => logLine(line)));
    const of = await info("persistence");
    const bad = [];
    const it = of.Persistence || {};
    if (it.rdb_last_bgsave_status === 0) bad.push("the last checkpoint failed");
    if (it.aof_last_write_status === 0) bad.push("the log cannot be written: writes are refused");
    if (it.loading) bad.push("data is being loaded: " + it.loading_loaded_perc + " %");
    fill(banner, bad.length > 0 && h("div", { class: "banner", role: "alert" }, bad.join("; ")));
  }));
  return { frame: draw, stop: () => stops.forEach((stop) => stop()) };
}

function logLine(line) {
  const of = /^(\d+):(\S) (\d+ \S+ \d+) (\S+) (.) (.*)$/.exec(line);
  if (!of) return h("li", {}, h("span", { class: "mono" }, line));
  return h("li", { class: of[5] === "#" ? "warn" : "" }, h("time", {}, of[4].slice(0, 8)), h("span", {}, of[6]));
}

// Commands.

export function commands(root) {
  let before = null, picked = null;
  const detail = h("div");
  const all = table([
    { name: "Command", of: (r) => r.name, class: "mono" },
    { name: "calls/s", number: true, of: (r) => r.rate, text: (r) => count(r.rate) },
    { name: "calls", number: true, of: (r) => r.calls, text: (r) => count(r.calls) },
    { name: "share of time", number: true, of: (r) => r.share, text: (r) => h("span", { class: "row tight" }, meter(r.share * 0.79), " " + percent(r.share)) },
    { name: "mean", number: true, of: (r) => r.mean, text: (r) => micros(r.mean) },
    { name: "p50", number: true, of: (r) => r.p50, text: (r) => micros(r.p50) },
    { name: "p99", number: true, of: (r) => r.p99, text: (r) => micros(r.p99) },
    { name: "p99.9", number: true, of: (r) => r.p999, text: (r) => micros(r.p999) },
    { name: "failed", number: true, of: (r) => r.failed, text: (r) => (r.failed ? h("span", { class: "warn" }, count(r.failed)) : "0") },
    { name: "refused", number: true, of: (r) => r.refused, text: (r) => (r.refused ? h("span", { class: "warn" }, count(r.refused)) : "0") },
  ], { by: 3, label: "Commands", pick: (row) => { picked = row.name; histogram(); }, empty: "No command was run since the start or CONFIG RESETSTAT." });
  const errors = table([{ name: "Error", of: (r) => r[0], class: "mono" }, { name: "replies", number: true, of: (r) => r[1], text: (r) => count(r[1]) }], { by: 1, label: "Errors", empty: "No reply was an error." });
  add(root, [head("Commands", h("span", { class: "note" }, "since the start or CONFIG RESETSTAT; rates of the last two seconds")),
    h("div", { class: "grid" }, card("", "By time", "choose one for its histogram", h("div", { class: "scroll" }, all.element)), card("w8", "Histogram", null, detail), card("w4", "Errors by their first word", null, h("div", { class: "scroll short" }, errors.element)))]);
  fill(detail, h("p", { class: "empty" }, "Choose a command."));
  const histogram = async () => {
    try {
      const of = await run(["LATENCY", "HISTOGRAM", picked]);
      const [, fields] = (of || []).find(([name]) => name === picked) || [];
      const pairs = fields ? fields.find(([name]) => name === "histogram_usec")[1] : [];
      const total = pairs.length ? pairs[pairs.length - 1][1] : 0;
      let seen = 0;
      fill(detail, h("h3", { class: "mono" }, picked), pairs.map(([limit, sum]) => { const own = sum - seen; seen = sum; return h("div", { class: "row tight" }, h("span", {}, "≤ " + micros(limit)), meter((own / total) * 0.79), h("b", {}, percent(own / total) )); }));
    } catch (error) { say(error.message); }
  };
  const stop = every(2, async () => {
    const of = await info("commandstats", "latencystats", "errorstats"), now = performance.now();
    const latency = of.Latencystats || {};
    const rows = Object.entries(of.Commandstats || {}).map(([name, text]) => {
      const it = parts(text), short = name.replace("cmdstat_", ""), times = parts(latency["latency_percentiles_usec_" + short] || "");
      return { name: short, calls: Number(it.calls), usec: Number(it.usec), mean: Number(it.usec_per_call), failed: Number(it.failed_calls), refused: Number(it.rejected_calls), p50: Number(times.p50), p99: Number(times.p99), p999: Number(times["p99.9"]) };
    });
    const total = rows.reduce((sum, row) => sum + row.usec, 0) || 1, seconds = before ? (now - before.now) / 1000 : 1;
    for (const row of rows) { row.share = row.usec / total; row.rate = before ? Math.max(0, row.calls - (before.calls[row.name] || 0)) / seconds : 0; }
    before = { now, calls: Object.fromEntries(rows.map((row) => [row.name, row.calls])) };
    all.set(rows);
    errors.set(Object.entries(of.Errorstats || {}).map(([name, text]) => [name.replace("errorstat_", ""), Number(parts(text).count)]));
  });
  return { stop };
}

// Clients.

export function clients(root) {
  const place = h("span", { class: "note" });
  const all = table([
    { name: "id", number: true, of: (r) => Number(r.id) }, { name: "address", of: (r) => r.addr, class: "mono" }, { name: "name", of: (r) => r.name }, { name: "user", of: (r) => r.user },
    { name: "library", of: (r) => (r["lib-name"] || "") + " " + (r["lib-ver"] || "") }, { name: "db", number: true, of: (r) => Number(r.db) }, { name: "last", of: (r) => r.cmd, class: "mono" },
    { name: "age", number: true, of: (r) => Number(r.age), text: (r) => span(Number(r.age)) }, { name: "idle", number: true, of: (r) => Number(r.idle), text: (r) => span(Number(r.idle)) },
    { name: "memory", number: true, of: (r) => Number(r["tot-mem"]), text: (r) => bytes(Number(r["tot-mem"])) }, { name: "to send", number: true, of: (r) => Number(r.omem), text: (r) => bytes(Number(r.omem)) },
    { name: "in", number: true, of: (r) => Number(r["tot-net-in"]), text: (r) => bytes(Number(r["tot-net-in"])) }, { name: "out", number: true, of: (r) => Number(r["tot-net-out"]), text: (r) => bytes(Number(r["tot-net-out"])) },
    { name: "", text: (r) => h("button", { class: "small danger", type: "button", onclick: () => kill(r) }, "Kill") },
  ], { by: 9, label: "Clients" });
  const kill = async (row) => {
    if (!(await confirm("Kill client " + row.id, "The connection from " + row.addr + " (user " + row.user + ") is closed at once.", "Kill"))) return;
    try { await run(["CLIENT", "KILL", "ID", row.id]); say("Client " + row.id + " is closed."); await load(); } catch (error) { say(error.message); }
  };
  const load = async () => {
    const text = await run(["CLIENT", "LIST"]);
    const rows = text.trim().split("\n").filter(Boolean).map((line) => Object.fromEntries(line.split(" ").map((part) => { const at = part.indexOf("="); return [part.slice(0, at), part.slice(at + 1)]; })));
    place.textContent = rows.length + " connected" + (rows.length > 500 ? ", 500 are shown" : "");
    all.set(rows);
  };
  add(root, [head("Clients", place), card("", null, null, h("div", { class: "scroll" }, all.element))]);
  return { stop: every(3, load) };
}

// Slow log.

export function slow(root) {
  const kinds = [["Slow commands", ["COMMANDLOG", "GET", "100", "slow"], micros], ["Large requests", ["COMMANDLOG", "GET", "100", "large-request"], bytes], ["Large replies", ["COMMANDLOG", "GET", "100", "large-reply"], bytes]];
  const tables = kinds.map(([title, , format]) => table([
    { name: "when", number: true, of: (r) => r[1], text: (r) => clock(r[1]) }, { name: title === "Slow commands" ? "took" : "size", number: true, of: (r) => r[2], text: (r) => format(r[2]) },
    { name: "command", text: (r) => h("span", { class: "key" }, r[3].map((one) => (/^[^\s"]+$/.test(one) ? one : JSON.stringify(one))).join(" ").slice(0, 300)) }, { name: "client", of: (r) => r[4], class: "mono" }, { name: "name", of: (r) => r[5] },
  ], { by: 0, label: title, empty: "Nothing was noticed." }));
  const events = table([{ name: "event", of: (r) => r[0] }, { name: "last", number: true, of: (r) => r[1], text: (r) => clock(r[1]) }, { name: "took", number: true, of: (r) => r[2], text: (r) => r[2] + " ms" }, { name: "worst", number: true, of: (r) => r[3], text: (r) => r[3] + " ms" }], { by: 1, label: "Events", empty: "None, or latency-monitor-threshold is 0." });
  add(root, [head("Slow log"), h("div", { class: "grid" }, kinds.map(([title], at) => card(at === 0 ? "" : "w6", title, at === 0 ? "slowlog-log-slower-than" : null, h("div", { class: "scroll short" }, tables[at].element))), card("", "Events that took long", "LATENCY LATEST", h("div", { class: "scroll short" }, events.element)))]);
  const stop = every(3, async () => {
    const { replies } = await ask("api/pipeline", { commands: [...kinds.map(([, args]) => args), ["LATENCY", "LATEST"]] });
    replies.forEach((reply, at) => (tables[at] || events).set(value(reply)));
  });
  return { stop };
}

// States of a move of slots in which nothing of it goes on.
const OVER = ["success", "failed", "cancelled"];

// Persistence.

export function persistence(root) {
  const place = h("div", { class: "grid" }), stops = [];
  const canvas = h("canvas", { class: "chart", role: "img", "aria-label": "Changes that are in no checkpoint" });
  stops.push(hover(canvas));
  const save = async (args, what) => {
    if (!(await confirm(what, "It is made in the background; commands go on."))) return;
    try { say(await run(args)); } catch (error) { say(error.message); }
  };
  add(root, [head("Persistence", h("button", { type: "button", onclick: () => save(["BGSAVE"], "Make a checkpoint") }, "Make a checkpoint"), h("button", { type: "button", onclick: () => save(["BGREWRITEAOF"], "Shorten the log") }, "Shorten the log")), place]);
  const state = h("div"), log = h("div"), progress = h("div"), cold = h("div"), tier = card("", "Tier", "values out of memory", cold);
  tier.hidden = true;
  add(place, [card("w4", "Checkpoints", null, state), card("w4", "Log", null, log), card("w4", "Now", null, progress), tier, card("", "Changes that are in no checkpoint", null, canvas)]);
  const ok = (it) => (it ? h("span", { class: "good" }, "ok") : h("span", { class: "bad" }, "failed"));
  stops.push(every(2, async () => {
    const it = (await info("persistence")).Persistence, level = await run(["CONFIG", "GET", "durability"]);
    fill(state, facts([["durability", h("b", {}, level[0] ? level[0][1] : "–")], ["last", clock(it.rdb_last_save_time) + " (" + span(Date.now() / 1000 - it.rdb_last_save_time) + " ago)"], ["it", ok(it.rdb_last_bgsave_status)], ["made", count(it.rdb_saves)], ["failed", count(it.checkpoint_failures)], ["took", it.rdb_last_bgsave_time_sec < 0 ? "–" : span(it.rdb_last_bgsave_time_sec)], ["keys in it", count(it.checkpoint_last_records)], ["size", bytes(it.checkpoint_last_bytes)], ["memory it held", bytes(it.rdb_last_cow_size)]]));
    fill(log, it.aof_enabled ? facts([["can be written", ok(it.aof_last_write_status)], ["checkpoint and log", bytes(it.aof_current_size)], ["checkpoint", bytes(it.aof_base_size)], ["log after it", bytes(it.aof_current_size - it.aof_base_size)], ["not yet durable", bytes(it.aof_buffer_length)], ["shortened", count(it.aof_rewrites)]]) : h("p", { class: "empty" }, "There is no log (durability, appendonly)."));
    const running = it.rdb_bgsave_in_progress || it.aof_rewrite_in_progress;
    fill(progress, it.loading ? [h("p", {}, "Data is being loaded."), meter(it.loading_loaded_perc / 100)] : running ? [h("p", {}, "A checkpoint is being made."), meter((Number(it.current_fork_perc) / 100) * 0.79), facts([["keys", count(it.current_save_keys_processed) + " of " + count(it.current_save_keys_total)], ["rate", bytes(it.checkpoint_current_bytes_per_sec) + "/s"], ["memory held", bytes(it.current_cow_size)]])] : h("p", { class: "empty" }, "Nothing is being saved or loaded."));
  }));
  stops.push(every(5, async () => {
    const it = (await info("tier")).Tier;
    tier.hidden = !it;
    if (!it) return;
    const is_well = it.tier_state === "ok";
    fill(cold, facts([["state", h("span", { class: is_well ? "good" : "bad" }, it.tier_state)], ["keys", count(it.tier_keys)], ["their values", bytes(it.tier_bytes_live)], ["on the device", bytes(it.tier_bytes_used) + " in " + count(it.tier_segments) + " segments"], ["demoted", count(it.tier_demoted)], ["read", count(it.tier_reads) + " times, " + count(it.tier_reads_pending) + " wait"], ["faults", count(it.tier_checksum_errors + it.tier_io_errors)]]));
  }));
  return { frame: () => { const frames = store.frames(300); lines(canvas, frames.map((frame) => frame.t), [{ name: "changes", colour: "c1", fill: true, values: frames.map((frame) => store.at(frame, "changes")) }]); }, stop: () => stops.forEach((stop) => stop()) };
}

// Replication.

export function replication(root) {
  const state = h("div"), stream = h("div"), stops = [], canvas = h("canvas", { class: "chart", role: "img", "aria-label": "Bytes to and from other servers" });
  stops.push(hover(canvas));
  const replicas = table([{ name: "replica", of: (r) => r.ip + ":" + r.port, class: "mono" }, { name: "state", of: (r) => r.state }, { name: "link", of: (r) => r.link || "" }, { name: "offset", number: true, of: (r) => Number(r.offset) }, { name: "behind", number: true, of: (r) => Number(r.lag_bytes), text: (r) => (r.lag_bytes ? bytes(Number(r.lag_bytes)) : "–") }, { name: "heard", number: true, of: (r) => Number(r.lag_ms ?? r.lag * 1000), text: (r) => (r.lag_ms ?? r.lag * 1000) + " ms ago" }], { by: 4, label: "Replicas", empty: "No replica is connected." });
  const group = table([{ name: "node", of: (r) => r.name || r.id.slice(0, 8), class: "mono" }, { name: "address", of: (r) => r.addr, class: "mono" }, { name: "role", of: (r) => r.role }, { name: "votes", of: (r) => r.votes }, { name: "health", of: (r) => r.health, text: (r) => h("span", { class: r.health === "ok" || r.health === "up" ? "good" : "bad" }, r.health) }], { by: 0, down: false, label: "Control group", empty: "This server is in no control group." });
  const leader = h("p", { class: "note" }), map = h("canvas", { width: "1024", height: "256", class: "slots", role: "img", "aria-label": "Hash slots by owner" }), owners = h("div"), moves = table([
    { name: "begun", number: true, of: (r) => r.create_time, text: (r) => clock(r.create_time) }, { name: "slots", of: (r) => r.slot_ranges, class: "mono" }, { name: "from here", of: (r) => (r.operation === "EXPORT" ? "yes" : "no") },
    { name: "other node", of: (r) => String(r.operation === "EXPORT" ? r.target_node : r.source_node).slice(0, 8), class: "mono" }, { name: "state", of: (r) => r.state, text: (r) => h("span", { class: r.state === "success" ? "good" : OVER.includes(r.state) ? "bad" : "warn" }, r.state) }, { name: "", of: (r) => r.message || "" },
  ], { by: 0, label: "Moves", empty: "No slot has moved to or from this node since its start.", most: 50 });
  const cluster = card("", "Hash slots", "16,384, by row of 256", map, owners, h("h3", {}, "Moves"), h("div", { class: "scroll short" }, moves.element));
  cluster.hidden = true;
  add(root, [head("Replication"), h("div", { class: "grid" }, card("w6", "This server", null, state), card("w6", "Stream", null, stream), card("", "Replicas", null, h("div", { class: "scroll" }, replicas.element)), card("", "Control group", null, leader, h("div", { class: "scroll" }, group.element)), cluster, card("", "Bytes to and from other servers", null, canvas))]);
  stops.push(every(2, async () => {
    const it = (await info("replication")).Replication, is_replica = it.role === "slave";
    fill(state, facts([["role", h("b", {}, is_replica ? "replica" : "primary")], is_replica && ["primary", it.master_host + ":" + it.master_port], is_replica && ["link", h("span", { class: it.master_link_status === "up" ? "good" : "bad" }, it.master_link_status)], is_replica && ["heard", it.master_last_io_seconds_ago + " s ago"], is_replica && ["state", it.iolite_state || ""], is_replica && it.master_sync_in_progress ? ["reads everything", String(it.master_sync_perc || 0) + " %"] : null, ["failover", it.master_failover_state], ["replicas", count(it.connected_slaves)]]));
    fill(stream, facts([["name", h("span", { class: "mono" }, it.master_replid)], ["offset", count(it.master_repl_offset)], ["backlog", it.repl_backlog_active ? bytes(it.repl_backlog_histlen) + " of " + bytes(it.repl_backlog_size) : "none"], ["from offset", count(it.repl_backlog_first_byte_offset)]]));
    replicas.set(Object.entries(it).filter(([name]) => /^slave\d+$/.test(name)).map(([, text]) => parts(text)));
    const nodes = Object.entries(it).filter(([name]) => /^control_node\d+$/.test(name)).map(([, text]) => parts(text));
    group.set(nodes);
    const named = (all, id) => { const one = all.find((node) => node.id === id); return (one && one.name) || String(id).slice(0, 8); };
    leader.textContent = nodes.length > 0 ? "led by " + named(nodes, it.control_leader) + " in term " + it.control_term + "; " + it.control_fault_tolerance + " may fail" : "";
  }));
  stops.push(every(2, async () => {
    const it = (await info("cluster")).Cluster;
    cluster.hidden = !(it && it.cluster_enabled);
    if (cluster.hidden) return;
    const ranges = await run(["CLUSTER", "SLOTS"]), all = new Array(16384).fill(-1), names = [], counts = [];
    for (const [from, to, node] of ranges) {
      const name = node[0] + ":" + node[1];
      if (!names.includes(name)) { names.push(name); counts.push(0); }
      const at = names.indexOf(name);
      counts[at] += to - from + 1;
      all.fill(at, from, to + 1);
    }
    const known = (await run(["CLUSTER", "GETSLOTMIGRATIONS"])).map((move) => Object.fromEntries(move));
    moves.set(known);
    const moving = new Set();
    for (const move of known) {
      if (OVER.includes(move.state)) continue;
      for (const [, from, to] of String(move.slot_ranges).matchAll(/(\d+)(?:-(\d+))?/g)) for (let slot = Number(from); slot <= Number(to ?? from); slot += 1) moving.add(slot);
    }
    slots(map, all, moving);
    const nobody = all.filter((owner) => owner < 0).length;
    fill(owners, facts([...names.map((name, at) => [h("span", {}, swatch(SLOT_COLOURS[at % SLOT_COLOURS.length]), name), count(counts[at]) + " slots"]), ["nobody's", count(nobody)], moving.size > 0 && [h("span", {}, swatch("ink"), "moving"), count(moving.size)]]));
  }));
  return { frame: () => { const frames = store.frames(300); lines(canvas, frames.map((frame) => frame.t), [{ name: "to replicas", colour: "c1", fill: true, values: frames.map((frame) => store.at(frame, "repl_out")) }, { name: "from the primary", colour: "c3", values: frames.map((frame) => store.at(frame, "repl_in")) }], (v) => bytes(v) + "/s"); }, stop: () => stops.forEach((stop) => stop()) };
}

// Configuration.

export function config(root) {
  let pairs = [];
  const find = h("input", { type: "search", class: "wide", placeholder: "Find a directive", "aria-label": "Find a directive", oninput: () => draw() });
  const all = table([{ name: "directive", of: (r) => r[0], class: "mono" }, { name: "value", of: (r) => r[1], class: "mono key" }, { name: "", text: (r) => h("button", { class: "small", type: "button", "aria-label": "Set " + r[0], onclick: () => set(r) }, "Set") }], { by: 0, down: false, label: "Directives", most: 400 });
  const draw = () => { const text = find.value.toLowerCase(); all.set(pairs.filter(([name, of]) => name.includes(text) || of.toLowerCase().includes(text))); };
  const load = async () => { try { pairs = (await run(["CONFIG", "GET", "*"])); draw(); } catch (error) { say(error.message); } };
  const set = (row) => {
    const field = h("input", { class: "wide mono", value: row[1], "aria-label": row[0] });
    const box = h("dialog", { "aria-label": "Set " + row[0] }, h("h2", { class: "mono" }, row[0]), h("p", { class: "note" }, "In force at once; Rewrite keeps it in the configuration file."), h("div", { class: "row" }, field), h("div", { class: "row" }, h("button", { type: "button", onclick: () => box.close() }, "Cancel"), h("button", { class: "main", type: "button", onclick: async () => { try { await run(["CONFIG", "SET", row[0], field.value]); say(row[0] + " is set."); box.close(); await load(); } catch (error) { say(error.message); } } }, "Set")));
    box.addEventListener("close", () => box.remove());
    document.body.append(box);
    box.showModal();
  };
  const rewrite = async () => { if (await confirm("Rewrite the configuration file", "The file is written anew with what is in force now.", "Rewrite")) { try { await run(["CONFIG", "REWRITE"]); say("The file is written."); } catch (error) { say(error.message); } } };
  add(root, [head("Configuration", find, h("button", { type: "button", onclick: rewrite }, "Rewrite the file")), card("", null, null, h("div", { class: "scroll" }, all.element))]);
  load();
}

// Users.

export function users(root) {
  const list = h("div"), out = h("pre", { class: "mono" }), user = h("input", { placeholder: "user", "aria-label": "User", value: store.user || "" }), command = h("input", { class: "wide", placeholder: "GET key", "aria-label": "Command" });
  const denials = table([{ name: "user", of: (r) => r.username }, { name: "why", of: (r) => r.reason }, { name: "what", of: (r) => r.object, class: "key" }, { name: "in", of: (r) => r.context }, { name: "times", number: true, of: (r) => r.count }, { name: "ago", number: true, of: (r) => Number(r["age-seconds"]), text: (r) => span(Number(r["age-seconds"])) }], { by: 5, down: false, label: "Denials", empty: "Nothing was denied." });
  const ask_dry = async (event) => { event.preventDefault(); try { out.textContent = await run(["ACL", "DRYRUN", user.value, ...words(command.value)]); } catch (error) { out.textContent = error.message; } };
  add(root, [head("Users"), h("div", { class: "grid" }, card("", "Users and their rules", "ACL LIST", list), card("w6", "May a user run a command?", "ACL DRYRUN", h("form", { class: "row", onsubmit: ask_dry }, user, command, h("button", { type: "submit" }, "Ask")), out), card("w6", "Denials", "ACL LOG", h("div", { class: "scroll short" }, denials.element)))]);
  const stop = every(5, async () => {
    const all = await run(["ACL", "LIST"]);
    fill(list, h("ul", { class: "list" }, all.map((line) => { const [, name, ...rules] = line.split(" "); return h("li", {}, h("b", {}, name), h("span", { class: "mono key" }, rules.map((rule) => (rule.startsWith("#") ? "#…" : rule)).join(" "))); })));
    denials.set((await run(["ACL", "LOG"])).map((entry) => Object.fromEntries(entry)));
  });
  return { stop };
}

// Console.

export function words(line) {
  const all = [];
  let word = null, quote = null;
  for (let at = 0; at < line.length; at += 1) {
    const one = line[at];
    if (quote) {
      if (one === "\\" && quote === '"' && at + 1 < line.length) { at += 1; const next = line[at]; word += { n: "\n", r: "\r", t: "\t" }[next] ?? next; } else if (one === quote) quote = null; else word += one;
    } else if (one === '"' || one === "'") { quote = one; word = word ?? ""; } else if (/\s/.test(one)) { if (word !== null) { all.push(word); word = null; } } else word = (word ?? "") + one;
  }
  if (quote) throw new Error("a quote is not closed");
  if (word !== null) all.push(word);
  return all;
}

function pretty(tree, depth = 0) {
  const [kind] = Object.keys(tree), of = tree[kind], pad = "   ".repeat(depth);
  const list = (values, sign) => (values.length === 0 ? "(empty)" : values.slice(0, 1000).map((one, at) => (at ? pad : "") + (at + 1) + sign + " " + pretty(one, depth + 1)).join("\n") + (values.length > 1000 ? "\n" + pad + "… " + (values.length - 1000) + " more" : ""));
  if (tree.bulk !== undefined) return JSON.stringify(show(tree.bulk, 65536));
  if (tree.verbatim !== undefined) return show(tree.verbatim, 65536).replaceAll("\\u000d", "");
  switch (kind) {
    case "integer": return "(integer) " + of;
    case "double": return "(double) " + of;
    case "error": return "(error) " + of;
    case "null": return "(nil)";
    case "boolean": return of ? "(true)" : "(false)";
    case "array": case "push": return list(of, ")");
    case "set": return list(of, "~");
    case "map": return of.length === 0 ? "(empty)" : of.slice(0, 1000).map(([key, one], at) => (at ? pad : "") + (at + 1) + "# " + pretty(key, depth) + " => " + pretty(one, depth + 1)).join("\n");
    default: return String(of);
  }
}

const asked = [];

export function terminal(root) {
  let at = asked.length, docs = null, db = 0;
  const out = h("div", { class: "out mono", role: "log", "aria-live": "polite", tabindex: "0", "aria-label": "Replies" }), hint = h("div", { class: "hint mono" });
  const input = h("input", { class: "mono", autocomplete: "off", autocapitalize: "off", spellcheck: "false", "aria-label": "Command", placeholder: "INFO server" });
  const write = (kind, text) => { out.append(h("pre", { class: kind }, text)); out.scrollTop = out.scrollHeight; };
  const help = async () => {
    const name = (input.value.trim().split(/\s+/)[0] || "").toLowerCase();
    if (!name) { hint.textContent = "↑ and ↓ go through what was asked; a command that is @dangerous is asked for once more"; return; }
    docs = docs || Object.create(null);
    if (docs[name] === undefined) { docs[name] = null; try { const of = await run(["COMMAND", "DOCS", name]); docs[name] = of[0] ? Object.fromEntries(of[0][1].filter(([, one]) => typeof one === "string" || Array.isArray(one))) : null; } catch { docs[name] = null; } }
    const of = docs[name];
    hint.textContent = of ? name.toUpperCase() + " " + usage(of.arguments || []) + " — " + (of.summary || "") + (of.complexity ? " (" + of.complexity + ")" : "") : "";
  };
  const usage = (all) => all.map((one) => { const it = Array.isArray(one) && Array.isArray(one[0]) ? Object.fromEntries(one) : {}; const name = (it.token ? it.token + " " : "") + (it.arguments ? usage(it.arguments) : it.type === "pure-token" ? "" : it.name || ""); return (it.flags || []).includes("optional") ? "[" + name.trim() + "]" : name.trim(); }).join(" ");
  const send = async (event) => {
    event.preventDefault();
    const line = input.value.trim();
    if (!line) return;
    asked.push(line);
    at = asked.length;
    input.value = "";
    write("asked", (db ? "[" + db + "] " : "") + "> " + line);
    try {
      const args = words(line);
      if (args[0].toLowerCase() === "clear") { fill(out); return; }
      if (args[0].toLowerCase() === "select" && /^\d+$/.test(args[1] || "")) { await run(["PING"], Number(args[1])); db = Number(args[1]); write("", "OK"); return; }
      const row = await run(["COMMAND", "INFO", args[0]]).catch(() => []);
      if (row[0] && (row[0][6] || []).includes("@dangerous") && !(await confirm(args[0].toUpperCase() + " is dangerous", "It may touch everything, or take long: " + line.slice(0, 200), "Run it"))) { write("note", "not run"); return; }
      const of = await ask("api/command", { args, db });
      write(of.reply.error ? "bad" : "", pretty(of.reply));
      write("note", micros(of.us));
    } catch (error) { write("bad", error.message); }
    help();
  };
  input.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowUp" && event.key !== "ArrowDown") return;
    event.preventDefault();
    at = Math.min(asked.length, Math.max(0, at + (event.key === "ArrowUp" ? -1 : 1)));
    input.value = asked[at] || "";
  });
  input.addEventListener("input", help);
  add(root, [head("Console", h("span", { class: "note" }, "as user " + store.user)), h("div", { class: "term" }, out, hint, h("form", { onsubmit: send }, h("span", { class: "mono" }, ">"), input, h("button", { class: "main", type: "submit" }, "Run")))]);
  input.focus();
  help();
}

// Log.

export function log(root) {
  let last = 0, is_held = false;
  const out = h("div", { class: "scroll mono", role: "log", tabindex: "0", "aria-label": "Lines of the server log" }), find = h("input", { type: "search", class: "wide", placeholder: "Only lines with", "aria-label": "Only lines with", oninput: () => filter() });
  const hold = h("button", { type: "button", "aria-pressed": "false", onclick: () => { is_held = !is_held; hold.setAttribute("aria-pressed", String(is_held)); hold.textContent = is_held ? "Go on" : "Hold"; } }, "Hold");
  const filter = () => { for (const line of out.children) line.hidden = find.value !== "" && !line.textContent.toLowerCase().includes(find.value.toLowerCase()); };
  add(root, [head("Log", find, hold), card("", null, null, out)]);
  const stop = every(1.5, async () => {
    if (is_held) return;
    const { lines: all } = await ask("api/log?after=" + last);
    if (all.length === 0) return;
    const at_end = out.scrollTop + out.clientHeight > out.scrollHeight - 40;
    for (const [number, line] of all) { last = number; out.append(h("pre", { class: / # /.test(line.slice(0, 60)) ? "warn" : "" }, line)); }
    while (out.children.length > 1000) out.firstChild.remove();
    filter();
    if (at_end || all.length > 20) out.scrollTop = out.scrollHeight;
  });
  return { stop };
}
