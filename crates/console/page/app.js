// The page: who is logged in, which view is shown, and the stream of figures that all views draw from.

import { h, fill, span, count } from "./draw.js";
import * as views from "./views.js";
import { keys } from "./keys.js";

const VIEWS = [
  ["overview", "Overview", views.overview], ["commands", "Commands", views.commands], ["keys", "Keys", keys],
  ["clients", "Clients", views.clients], ["slow", "Slow log", views.slow], ["persistence", "Persistence", views.persistence],
  ["replication", "Replication", views.replication], ["config", "Configuration", views.config], ["users", "Users", views.users],
  ["console", "Console", views.terminal], ["log", "Log", views.log],
];
const by = (id) => document.getElementById(id);
const KEPT = 3600;

// What all views share.
const state = { names: [], frames: [], user: null, view: null, events: null };
export const store = {
  // The value of a series in a frame.
  at(frame, name) { return frame ? frame.v[state.names.indexOf(name)] ?? NaN : NaN; },
  last() { return state.frames[state.frames.length - 1]; },
  frames(seconds) { return seconds ? state.frames.slice(-seconds) : state.frames; },
  get user() { return state.user; },
};

export function say(text) {
  const place = by("say");
  place.textContent = text;
  place.hidden = false;
  clearTimeout(place.timer);
  place.timer = setTimeout(() => { place.hidden = true; }, 6000);
}

export async function ask(path, body) {
  const options = body === undefined ? {} : { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json", "X-Iolite": "1" } };
  const answer = await fetch(path, options);
  if (answer.status === 401 && path !== "login") { enter(null); throw new Error("log in first"); }
  const kind = answer.headers.get("content-type") || "";
  const of = kind.startsWith("application/json") ? await answer.json() : { error: (await answer.text()).trim() };
  if (!answer.ok || of.error) throw new Error(of.error || answer.statusText);
  return of;
}

// One command; its reply as plain values, or an error that is thrown.
export async function run(args, db = 0) {
  const { reply } = await ask("api/command", { args, db });
  return value(reply);
}

export function text(base64) {
  return new TextDecoder().decode(Uint8Array.from(atob(base64), (one) => one.charCodeAt(0)));
}

export function value(tree) {
  const [kind] = Object.keys(tree), of = tree[kind];
  if (tree.bulk !== undefined) return text(tree.bulk);
  if (tree.verbatim !== undefined) return text(tree.verbatim);
  switch (kind) {
    case "error": throw new Error(of);
    case "integer": case "double": return Number(of);
    case "null": return null;
    case "array": case "set": case "push": return of.map(value);
    case "map": return of.map(([key, one]) => [value(key), value(one)]);
    default: return of;
  }
}

export function info(...sections) {
  return ask("info.json?" + sections.map((one) => "section=" + one).join("&"));
}

// Asks before something that cannot be taken back.
export function confirm(title, what, word = "Do it") {
  return new Promise((done) => {
    const box = h("dialog", { "aria-label": title }, h("h2", {}, title), h("p", {}, what),
      h("div", { class: "row" }, h("button", { type: "button", onclick: () => box.close("no") }, "Cancel"), h("button", { type: "button", class: "danger", onclick: () => box.close("yes") }, word)));
    box.addEventListener("close", () => { box.remove(); done(box.returnValue === "yes"); });
    document.body.append(box);
    box.showModal();
  });
}

function live(is_on, why) {
  const place = by("live");
  place.className = "live " + (is_on ? "on" : "off");
  place.textContent = why;
}

function listen() {
  if (state.events) state.events.close();
  const events = new EventSource("events");
  state.events = events;
  events.addEventListener("history", (event) => {
    const of = JSON.parse(event.data);
    state.names = of.series;
    state.frames = of.frames;
    live(true, "live");
    draw();
  });
  events.addEventListener("frame", (event) => {
    state.frames.push(JSON.parse(event.data));
    if (state.frames.length > KEPT) state.frames.shift();
    live(true, "live · up " + span(store.at(store.last(), "uptime")) + " · " + count(store.at(store.last(), "ops")) + "/s");
    draw();
  });
  events.onerror = () => {
    live(false, "no connection, trying again");
    if (events.readyState === EventSource.CLOSED) setTimeout(start, 3000);
  };
}

let waits = false;
function draw() {
  if (waits || document.hidden) return;
  waits = true;
  requestAnimationFrame(() => { waits = false; if (state.view && state.view.frame) state.view.frame(); });
}

function show() {
  const wanted = location.hash.slice(1).split("/")[0] || "overview";
  const [name, title, make] = VIEWS.find(([one]) => one === wanted) || VIEWS[0];
  if (state.view && state.view.stop) state.view.stop();
  for (const link of by("nav").children) {
    if (link.dataset.view === name) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  const current = by("nav").querySelector("[aria-current]");
  if (current && by("nav").scrollWidth > by("nav").clientWidth) by("nav").scrollLeft = current.offsetLeft - 60;
  document.title = title + " · Iolite";
  const main = by("main");
  fill(main);
  state.view = make(main) || {};
  draw();
}

function login(is_open) {
  const user = h("input", { name: "user", autocomplete: "username", value: "default" }), password = h("input", { type: "password", name: "password", autocomplete: "current-password" });
  const send = async (event) => {
    if (event) event.preventDefault();
    try { const of = await ask("login", { user: user.value, password: password.value }); enter(of.user); } catch (error) { say(error.message); password.focus(); }
  };
  fill(by("main"), h("form", { class: "card login", onsubmit: send }, h("img", { src: "icon.svg", alt: "", width: "46", height: "46" }), h("h1", {}, "Log in"),
    h("p", { class: "note" }, "As a user of this server. The page may do what the user may, and nothing else."),
    h("label", {}, "User", user), h("label", {}, "Password", password), h("button", { class: "main", type: "submit" }, "Log in")));
  if (is_open) send(); else password.focus();
}

function enter(user, is_open) {
  state.user = user;
  by("nav").hidden = by("leave").hidden = !user;
  if (!user) {
    if (state.events) state.events.close();
    if (state.view && state.view.stop) state.view.stop();
    state.view = null;
    live(false, "logged out");
    login(is_open);
    return;
  }
  fill(by("nav"), VIEWS.map(([name, title]) => h("a", { href: "#" + name, "data-view": name }, title)));
  listen();
  show();
  info("server", "replication").then((of) => {
    const server = of.Server || {}, role = (of.Replication || {}).role === "slave" ? "replica" : "primary";
    by("where").textContent = location.host + " · " + role + " · iolite " + server.iolite_version + " (Redis " + server.redis_version + ") · user " + user;
  }).catch((error) => say(error.message));
}

async function start() {
  try {
    const of = await ask("api/session");
    enter(of.user, of.open);
  } catch (error) {
    live(false, "no connection");
    setTimeout(start, 3000);
  }
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  try { localStorage.setItem("theme", name); } catch { /* Nothing is kept then. */ }
  draw();
}

let kept = null;
try { kept = localStorage.getItem("theme"); } catch { /* As the system has it. */ }
theme(kept || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
by("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
by("leave").addEventListener("click", async () => { try { await ask("logout", {}); } catch { /* It is over anyhow. */ } enter(null); });
window.addEventListener("hashchange", show);
window.addEventListener("resize", draw);
document.addEventListener("visibilitychange", draw);
start();
