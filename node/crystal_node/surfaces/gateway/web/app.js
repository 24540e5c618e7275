// The page: opening it by its link, the views, colours and keys.

import { hasToken, leave, onLockedOut, openByToken, openWith } from "/api.js";
import { devicesView } from "/devices.js";
import { announce, dialog, el, empty, field } from "/dom.js";
import { jobsView } from "/jobs.js";
import { memoriesView } from "/memories.js";
import { searchView } from "/search.js";

const THEMES = ["system", "light", "dark"];
const THEME = "crystal.theme";
const TITLES = { search: "Search", memories: "Memories", devices: "Devices", jobs: "Jobs" };
const KEYS = [
  ["/", "Search"],
  ["j  k  or arrows", "Next and previous"],
  ["Enter", "Open what is chosen"],
  ["Esc", "Close, or leave the field"],
  ["1  2  3  4", "Search, Memories, Devices, Jobs"],
  ["t", "Colours: as the system, light, dark"],
  ["?", "This list"],
];

const views = {};
let current = "";

/** Where each view is, made when it is first shown. */
function view(name) {
  const make = { search: searchView, memories: memoriesView, devices: devicesView, jobs: jobsView }[name];
  views[name] ??= make(document.getElementById(`view-${name}`));
  return views[name];
}

function show(name) {
  for (const section of document.querySelectorAll("main > section")) section.hidden = section.id !== `view-${name}`;
  for (const link of document.querySelectorAll("#nav a")) {
    if (link.dataset.view === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = TITLES[name] ? `${TITLES[name]} · Crystal` : "Crystal";
  if (current && current !== name) views[current]?.hide?.();
  current = TITLES[name] ? name : "";
  if (current) view(current).show();
}

function route() {
  if (!hasToken()) {
    locked();
    return;
  }
  const name = location.hash.replace(/^#\/?/, "").split("/")[0];
  show(TITLES[name] ? name : "search");
}

/** There is no session: how to get one. */
function locked(said = "") {
  const input = el("input", { type: "password", autocomplete: "off", spellcheck: "false" });
  const form = el(
    "form",
    {
      class: "stack",
      onsubmit: async (event) => {
        event.preventDefault();
        const token = input.value.trim();
        input.value = "";
        if (!/^[\x21-\x7e]+$/.test(token)) return;
        try {
          await openByToken(token);
          route();
        } catch (error) {
          locked(error.status === 401 ? "That is not the gateway's token" : error.message);
        }
      },
    },
    field("Or paste the gateway's token", input, "It is in state/gateway/token of the memory home, for you alone to read."),
    el("button", { type: "submit" }, "Open"),
  );
  document.getElementById("view-locked").replaceChildren(
    empty(
      said || "This page is not open",
      "A link opens it once. Have this machine print one:",
      el("pre", {}, el("code", {}, "crystal serve --link")),
      form,
    ),
  );
  show("locked");
  announce(said || "This page is not open");
}

function paint() {
  const theme = localStorage.getItem(THEME) ?? "system";
  document.documentElement.dataset.theme = theme;
  document.getElementById("theme").setAttribute("aria-label", `Colours: ${theme}`);
  document.getElementById("theme").title = `Colours: ${theme}`;
}

function repaint() {
  const now = localStorage.getItem(THEME) ?? "system";
  const next = THEMES[(THEMES.indexOf(now) + 1) % THEMES.length];
  localStorage.setItem(THEME, next);
  paint();
  announce(`Colours: ${next}`);
}

function help() {
  if (document.querySelector("dialog[open]")) return;
  dialog("Keys", () => [
    el(
      "dl",
      { class: "keys" },
      KEYS.flatMap(([keys, what]) => [
        el("dt", {}, keys.split("  ").map((key) => (key.startsWith("or ") ? ` ${key}` : el("kbd", {}, key)))),
        el("dd", {}, what),
      ]),
    ),
    el("p", { class: "quiet" }, "This page talks to your own machine alone, and keeps nothing when its tab is closed."),
    el("div", { class: "row end" }, el("button", { type: "button", onclick: leave }, "Close this session")),
  ]);
}

function typed(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (document.querySelector("dialog[open]")) return;
  const writing = event.target.closest?.("input, textarea, select");
  if (writing) {
    if (event.key === "Escape") event.target.blur();
    else if (current) views[current].key?.(event, true);
    return;
  }
  const number = Number(event.key);
  if (event.key === "?") help();
  else if (event.key === "t") repaint();
  else if (!current) return;
  else if (event.key === "/") {
    event.preventDefault();
    location.hash = "#/search";
    show("search");
    view("search").focus();
  } else if (number >= 1 && number <= 4) location.hash = `#/${Object.keys(TITLES)[number - 1]}`;
  else views[current].key?.(event, false);
}

async function start() {
  paint();
  document.getElementById("theme").addEventListener("click", repaint);
  document.getElementById("help").addEventListener("click", help);
  document.addEventListener("keydown", typed);
  onLockedOut(() => locked());
  const code = /^#link=([\w-]+)$/.exec(location.hash)?.[1];
  if (code) {
    // Out of the address at once: it stands in no history, and is good only once.
    history.replaceState(null, "", "/#/search");
    try {
      await openWith(code);
    } catch (error) {
      window.addEventListener("hashchange", route);
      if (hasToken()) route();
      else locked(error.message);
      return;
    }
  }
  window.addEventListener("hashchange", route);
  route();
}

start();
