// The page: opening it by its link, the views and their addresses, colours and keys.

import { addressOf, forgetStates, go, here } from "/address.js";
import { get, hasToken, leave, onLockedOut, openByToken, openWith } from "/api.js";
import { conversationView } from "/conversation.js";
import { devicesView } from "/devices.js";
import { announce, choice, dialog, el, empty, field } from "/dom.js";
import { homeView } from "/home.js";
import { jobsView } from "/jobs.js";
import { memoriesView } from "/memories.js";
import { problemsOf } from "/problems.js";
import { projectsView } from "/projects.js";
import { searchView } from "/search.js";

const THEMES = ["system", "light", "dark"];
const THEME = "crystal.theme";
const TITLES = {
  home: "Home",
  search: "Search",
  conversation: "Conversation",
  projects: "Projects",
  memories: "Memories",
  devices: "Devices",
  jobs: "Jobs",
  page: "This page",
};
const SETTINGS = ["devices", "jobs", "page"];
const MAKE = {
  home: homeView,
  search: searchView,
  conversation: conversationView,
  projects: projectsView,
  memories: memoriesView,
  devices: devicesView,
  jobs: jobsView,
  page: pageView,
};
const KEYS = [
  ["/", "Search"],
  ["j  k  or arrows", "Next and previous"],
  ["Enter", "Open what is chosen"],
  ["Esc", "Close, clear, or go back"],
  ["1  2  3  4", "Home, Projects, Memories, Settings"],
  ["t", "Colours: as the system, light, dark"],
  ["?", "This list"],
];
const NUMBERED = ["#/", "#/projects", "#/memories", "#/settings/devices"];

const views = {};
const scrolled = new Map();
let current = "";
let address = "";

/** Where each view is, made when it is first shown. */
function view(name) {
  views[name] ??= MAKE[name](document.getElementById(`view-${name}`), name);
  return views[name];
}

function show(name, rest = []) {
  for (const section of document.querySelectorAll("main > section")) section.hidden = section.id !== `view-${name}`;
  const inSettings = SETTINGS.includes(name);
  document.getElementById("subnav").hidden = !inSettings;
  mark("#subnav a", name);
  mark("#nav a", inSettings ? "settings" : name);
  document.title = TITLES[name] ? `${TITLES[name]} · Crystal` : "Crystal";
  if (current && current !== name) views[current]?.hide?.();
  const changed = current !== name;
  current = TITLES[name] ? name : "";
  document.getElementById("searching").hidden = !current;
  if (!current) return;
  view(current).show(rest);
  if (changed || current === "conversation") scrollTo(0, scrolled.get(address) ?? 0);
}

function mark(links, name) {
  for (const link of document.querySelectorAll(links)) {
    if (link.dataset.view === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function route() {
  if (!hasToken()) {
    locked();
    return;
  }
  if (address) scrolled.set(address, scrollY);
  address = location.hash || "#/";
  const { view: name, rest } = here();
  if (name === "settings") show(SETTINGS.includes(rest[0]) ? rest[0] : "devices");
  else if (SETTINGS.includes(name)) go(`#/settings/${name}`, { replace: true });
  else show(TITLES[name] ? name : "home", TITLES[name] ? rest : []);
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
          start();
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
      el("pre", { tabindex: 0 }, el("code", {}, "crystal serve --link")),
      form,
    ),
  );
  document.querySelector("#view-locked h2").replaceWith(el("h1", {}, said || "This page is not open"));
  show("locked");
  announce(said || "This page is not open");
}

function theme() {
  return localStorage.getItem(THEME) ?? "system";
}

function paint() {
  document.documentElement.dataset.theme = theme();
  document.getElementById("theme").setAttribute("aria-label", `Colours: ${theme()}`);
  document.getElementById("theme").title = `Colours: ${theme()}`;
}

function repaint(next = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]) {
  localStorage.setItem(THEME, next);
  paint();
  announce(`Colours: ${next}`);
}

function keysList() {
  return el(
    "dl",
    { class: "keys" },
    KEYS.flatMap(([keys, what]) => [
      el("dt", {}, keys.split("  ").map((key) => (key.startsWith("or ") ? ` ${key}` : el("kbd", {}, key)))),
      el("dd", {}, what),
    ]),
  );
}

async function close() {
  forgetStates();
  await leave();
}

function help() {
  if (document.querySelector("dialog[open]")) return;
  dialog("Keys", () => [
    keysList(),
    el("p", { class: "quiet" }, "This page talks to your own machine alone, and keeps nothing when its tab is closed."),
    el("div", { class: "row end" }, el("button", { type: "button", onclick: close }, "Close this session")),
  ]);
}

/** What concerns this page alone: its colours, its keys, its session. */
function pageView(root) {
  const colours = choice(THEMES.map((each) => [each, { system: "Same as the system", light: "Light", dark: "Dark" }[each]]), theme(), {
    onchange: () => repaint(colours.value),
  });
  root.append(
    el("h1", {}, "This page"),
    el("p", { class: "lead" }, "It talks only to your own machine, and keeps nothing once its tab is closed."),
    el(
      "div",
      { class: "stack narrow" },
      el("div", { class: "card" }, field("Colours", colours)),
      el("div", { class: "card stack" }, el("h2", {}, "Keys"), keysList()),
      el(
        "div",
        { class: "card row" },
        el("p", { class: "grow" }, "The session ends by itself after twelve idle hours."),
        el("button", { type: "button", onclick: close }, "Close this session"),
      ),
    ),
  );
  return { show: () => (colours.value = theme()) };
}

function toSearch() {
  document.getElementById("query").focus();
  document.getElementById("query").select();
}

function typed(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (document.querySelector("dialog[open]")) return;
  const writing = event.target.closest?.("input, textarea, select");
  if (writing) {
    if (event.key === "Escape") event.target.blur();
    else if (current && !event.target.matches("input[type=checkbox], input[type=radio]")) views[current].key?.(event, true);
    return;
  }
  const number = Number(event.key);
  if (event.key === "?") help();
  else if (event.key === "t") repaint();
  else if (!current) return;
  else if (event.key === "/") {
    event.preventDefault();
    toSearch();
  } else if (number >= 1 && number <= NUMBERED.length) go(NUMBERED[number - 1]);
  else views[current].key?.(event, false);
}

/** Marks the settings link while there are problems. */
async function lookForProblems() {
  const link = document.querySelector("#nav [data-view=settings]");
  try {
    const status = await get("/api/status");
    const lines = problemsOf(status);
    link.classList.toggle("needs", lines.length > 0);
    link.classList.toggle("bad", lines.some(([kind]) => kind === "bad"));
  } catch {
    link.classList.remove("needs", "bad");
  }
}

function start() {
  route();
  if (!hasToken()) return;
  lookForProblems();
  if (current === "home") toSearch();
}

async function begin() {
  paint();
  history.scrollRestoration = "manual";
  document.getElementById("theme").addEventListener("click", () => repaint());
  document.getElementById("help").addEventListener("click", help);
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address is the view's
    document.getElementById("main").focus();
  });
  document.getElementById("searching").addEventListener("submit", (event) => {
    event.preventDefault();
    const query = document.getElementById("query").value.trim();
    if (query) view("search").submit(query);
    else go(addressOf("home"));
  });
  for (const link of document.querySelectorAll("#nav a, .brand")) {
    link.addEventListener("click", () => {
      scrolled.delete(link.getAttribute("href"));
      if (link.getAttribute("href") === address) scrollTo(0, 0);
    });
  }
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href^='#/']");
    if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(link.getAttribute("href"));
  });
  document.addEventListener("keydown", typed);
  onLockedOut(() => locked());
  const code = /^#link=([\w-]+)$/.exec(location.hash)?.[1];
  if (code) {
    // Out of the address at once: it stands in no history, and is good only once.
    history.replaceState(null, "", "/#/");
    try {
      await openWith(code);
    } catch (error) {
      addEventListener("hashchange", route);
      if (hasToken()) start();
      else locked(error.message);
      return;
    }
  }
  addEventListener("hashchange", route);
  start();
}

begin();
