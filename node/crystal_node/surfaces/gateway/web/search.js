// Search: results by conversation, filters, and the chosen text beside them. A search has an address, which a reload and the back
// button keep.

import { addressOf, go, here, stateOf } from "/address.js";
import { get, post } from "/api.js";
import { choices, chosenChips, counted as countedValues } from "/choices.js";
import { ago, announce, counted, el, empty, failure, marked, skeleton } from "/dom.js";
import { Reader } from "/reading.js";

const PAGE = 20;
const FAST = "fast";
const KINDS = [["conversation", "Conversations"], ["memory", "Memories"], ["document", "Documents"], ["action", "Tool calls"]];
const AGES = [["24h", "Last 24 hours"], ["7d", "Last 7 days"], ["30d", "Last 30 days"], ["365d", "Last year"]];
const ROLES = [["user", "You"], ["assistant", "The agent"]];
const BYS = [["turn", "Questions with answers"], ["message", "Single messages"]];
const DEPTHS = [["deep", "With a language model"]];
const EXPLAINED = [["yes", "Explained"]];
const LABELS = { kind: "Kind", since: "Time", role: "Said by", agent: "Agent", project: "Project", device: "Device", source: "Tool", session: "Conversation", depth: "How", explain: "Scores" };
const NAMED = { kind: KINDS, since: AGES, role: ROLES, depth: DEPTHS, explain: EXPLAINED };
const FILTERS = Object.keys(LABELS);

export function searchView(root) {
  return new Search(root);
}

class Search {
  constructor(root) {
    this.state = { query: "" };
    this.hits = [];
    this.rows = [];
    this.found = 0;
    this.chosen = -1;
    this.running = null;
    this.asked = null;
    this.drawn = "";
    this.more = false;
    this.activity = null;
    this.input = document.getElementById("query");
    this.ways = this.switches();
    this.badge = el("span", { class: "badge", hidden: true });
    this.chips = el("div", { class: "chips" });
    this.lists = el("div", { class: "lists across" });
    this.filters = el("details", { class: "filters" }, el("summary", {}, "Filters ", this.badge), this.lists);
    this.filters.addEventListener("toggle", () => this.filters.open && this.drawFilters());
    this.said = el("p", { class: "said quiet" });
    this.list = el("ul", { class: "hits", role: "listbox", "aria-label": "Results", tabindex: -1 });
    this.rest = el("button", { type: "button", class: "wide", hidden: true, onclick: () => this.next() }, "Show more");
    this.place = el("div", { class: "results" }, this.said, this.list, this.rest);
    this.reader = new Reader({ closed: () => this.back(), gone: (id) => this.gone(id) });
    this.split = el("div", { class: "split" }, this.place, this.reader.root);
    root.append(el("h1", { class: "unseen" }, "Search"), el("div", { class: "refining" }, this.ways.root, this.filters, this.chips), this.split);
    this.welcome();
  }

  /** What is found, turns or messages, and whether thinking is. */
  switches() {
    const changed = () => this.only({ by: root.querySelector("[name=by]:checked").value === "message" ? "message" : "", thinking: thinking.checked });
    const by = BYS.map(([value, text]) =>
      el("label", {}, el("input", { type: "radio", name: "by", value, checked: value === BYS[0][0], onchange: changed }), el("span", {}, text)),
    );
    const thinking = el("input", { type: "checkbox", name: "thinking", onchange: changed });
    const root = el(
      "div",
      { class: "ways" },
      el("div", { class: "switch", role: "radiogroup", "aria-label": "What is found" }, by),
      el("label", {}, thinking, el("span", {}, "Thinking, too")),
    );
    return { root, thinking };
  }

  /** Shows the search that the address names, and the text that is read beside it. */
  show([name = "", reading = ""] = []) {
    const state = name ? stateOf(name) : { query: "" };
    this.lost = state === null;
    this.state = { query: "", ...state };
    const key = JSON.stringify(this.state);
    this.input.value = this.state.query;
    if (key === this.drawn) {
      this.read(reading);
      return;
    }
    this.drawn = key;
    this.ways.root.querySelector(`[name=by][value=${this.state.by || "turn"}]`).checked = true;
    this.ways.thinking.checked = Boolean(this.state.thinking);
    this.drawFilters();
    this.running?.abort();
    this.reader.close(true);
    if (this.state.query) this.ask(this.request(0));
    else {
      this.welcome();
      this.focus();
    }
  }

  hide() {
    this.input.value = "";
  }

  /** A search for these words, with the filters as they are. */
  submit(query) {
    if (here().view === "search" && query === this.state.query) this.ask(this.request(0));
    else go(addressOf("search", here().view === "search" ? { ...this.state, query } : { query }));
  }

  /** The same search with other filters. */
  only(changes) {
    go(addressOf("search", { ...this.state, ...changes }));
  }

  drawFilters() {
    const set = FILTERS.filter((name) => this.state[name]);
    this.badge.hidden = set.length === 0;
    this.badge.textContent = set.length;
    const { projects = [], devices = [], tools = [], agents = [] } = this.activity ?? {};
    const word = (name) => (name === "device" ? devices : []).find((each) => each.value === this.state[name])?.name ?? NAMED[name]?.find(([value]) => value === this.state[name])?.[1] ?? this.state[name];
    this.chips.replaceChildren(...chosenChips(set.map((name) => [name, LABELS[name], word(name)]), (name) => this.only({ [name]: "" })));
    if (set.length) this.chips.append(el("button", { type: "button", class: "plain small", onclick: () => this.clear() }, "Clear filters"));
    if (!this.filters.open) return;
    const list = (name, values) => choices(LABELS[name], values, this.state[name] ?? "", (value) => this.only({ [name]: value }), { least: 1 });
    const fixed = (name) => list(name, NAMED[name].map(([value, text]) => ({ value, name: text })));
    this.lists.replaceChildren(
      ...[
        list("project", countedValues(projects)),
        list("device", countedValues(devices)),
        list("source", countedValues(tools)),
        list("agent", countedValues(agents)),
        ...["kind", "since", "role", "depth", "explain"].map(fixed),
      ].filter(Boolean),
    );
    if (this.activity === null) this.lookAround();
  }

  /** What there is to filter by, with how many conversations each value has. */
  async lookAround() {
    this.activity = {};
    try {
      this.activity = await get("/api/activity");
      this.drawFilters();
    } catch {
      this.activity = null; // the other filters are there
    }
  }

  clear() {
    this.only(Object.fromEntries(FILTERS.map((name) => [name, ""])));
  }

  focus() {
    this.input.focus();
    this.input.select();
  }

  /** Takes all hits away. */
  empty() {
    this.hits = [];
    this.rows = [];
    this.chosen = -1;
    this.list.replaceChildren();
  }

  welcome() {
    this.empty();
    this.said.replaceChildren();
    this.rest.hidden = true;
    this.place.querySelector(".empty")?.remove();
    this.place.append(
      this.lost
        ? empty("This search was made in another tab", "Only that tab keeps its words. Type them again.")
        : empty(
            "Search your memory",
            "Words and meaning both count. Everything is answered from this machine's own disk.",
            el("p", { class: "quiet" }, el("kbd", {}, "/"), " to search, ", el("kbd", {}, "?"), " for all keys"),
          ),
    );
  }

  request(offset) {
    const { query, by, thinking, explain, depth } = this.state;
    const request = { query, limit: PAGE, offset, depth: depth || FAST, by: by || "turn" };
    for (const name of ["since", "role", "agent", "project", "device", "session", "source", "kind"]) {
      if (this.state[name]) request[name] = this.state[name];
    }
    if (explain) request.explain = true;
    if (thinking) request.thinking = true;
    return request;
  }

  next() {
    this.ask({ ...this.asked, offset: this.found });
  }

  async ask(request) {
    this.running?.abort();
    const running = new AbortController();
    this.running = running;
    const fresh = request.offset === 0;
    this.place.querySelector(".empty")?.remove();
    this.place.setAttribute("aria-busy", "true");
    this.rest.disabled = true;
    const waiting = skeleton(fresh ? 4 : 1);
    const late = setTimeout(() => {
      if (fresh) {
        this.list.replaceChildren();
        this.rest.hidden = true;
      }
      this.place.append(waiting);
    }, 150);
    try {
      const found = await post("/api/search", request, running.signal);
      this.asked = request;
      if (fresh) {
        this.empty();
        this.reader.close(true);
      }
      this.add(found, fresh);
      // What the address names by now: a hit may have been opened while the search was under way.
      if (fresh && here().view === "search") this.read(here().rest[1] ?? "");
    } catch (error) {
      if (error.name === "AbortError") return;
      if (fresh) {
        this.empty();
        this.said.replaceChildren();
        this.rest.hidden = true;
      }
      this.place.append(failure(error, () => this.ask(request)));
    } finally {
      clearTimeout(late);
      waiting.remove();
      this.rest.disabled = false;
      if (this.running === running) this.place.removeAttribute("aria-busy");
    }
  }

  add(found, fresh) {
    const known = new Set(this.hits.map((hit) => hit.id));
    const from = this.hits.length;
    this.draw(found.results.filter((hit) => !known.has(hit.id)));
    this.found = fresh ? found.results.length : this.found + found.results.length;
    this.more = found.more && found.results.length > 0;
    this.rest.hidden = !this.more;
    const about = [counted(this.hits.length, "result") + (this.more ? " so far" : ""), `${Math.round(found.took_ms)} ms`];
    if (found.mode === "keyword") about.push("by words alone");
    if (found.depth === "deep") about.push("deep");
    this.said.replaceChildren(about.join(" · "));
    if (found.weak && this.hits.length && fresh) this.said.prepend(el("strong", { class: "note" }, "Nothing recorded seems to answer this; these come nearest. "));
    if (found.note) this.said.append(el("span", { class: "note" }, ` ${found.note}`));
    if (this.asked.explain && found.explain) {
      this.said.append(el("span", { class: "note" }, ` ${how(found.explain)}`));
    }
    if (fresh && !this.hits.length) {
      this.place.append(empty("Nothing found", "Try other words, or fewer filters. What was forgotten is not found either."));
    }
    announce(fresh ? (this.hits.length ? `${counted(this.hits.length, "result")}` : "Nothing found") : `${this.hits.length - from} more`);
    if (!fresh && this.hits.length > from) this.choose(from);
  }

  /** Adds hits in groups: those of one conversation under one heading, where the best of them stood. */
  draw(found) {
    for (const group of grouped(settled(found))) {
      const name = `group-${this.list.children.length}`;
      const rows = group.map((hit) => this.row(hit, this.hits.push(hit) - 1, group[0]));
      this.rows.push(...rows);
      this.list.append(
        el("li", { class: "group", role: "presentation" }, this.heading(group[0], name), el("ul", { class: "turns", role: "group", "aria-labelledby": name }, rows)),
      );
    }
  }

  /** Where hits are from: the kind, project, tool and agent. */
  heading(hit, name) {
    const where = hit.kind === "document" ? hit.path : hit.project || hit.repository;
    const title = hit.kind === "conversation" ? hit.title : "";
    const heading = el("div", { class: "meta", id: name }, title ? el("strong", { class: "group-title" }, title) : el("span", { class: `kind ${hit.kind}` }, kindOf(hit)));
    for (const [kind, text] of [["where", where], ["tool", hit.source], ["device", hit.device_name], ["agent", hit.agent === hit.source ? "" : hit.agent]]) {
      if (text) heading.append(el("span", { class: kind, title: text }, text));
    }
    return heading;
  }

  row(hit, number, first) {
    const turn = hit.turn?.question ? hit.turn : null;
    const meta = el("div", { class: "meta" }, ago(hit.turn?.began_at || hit.created_at));
    if (hit.kind === "document" && hit.title) meta.append(el("span", { class: "where" }, hit.title));
    if (hit.kind === "conversation" && (!turn || hit.role === "thinking")) meta.append(el("span", {}, hit.role));
    if (hit.kind === "conversation" && hit.project !== first.project) meta.append(el("span", { class: "where" }, hit.project));
    if (hit.freshness === "fresh" || hit.freshness === "stale") meta.append(el("span", { class: `fresh ${hit.freshness}` }, hit.freshness));
    if (isUnanswered(hit)) meta.append(el("span", { class: "flag" }, "no answer"));
    if (hit.weak) meta.append(el("span", { class: "flag" }, "weak"));
    if (hit.provisional) meta.append(el("span", { class: "flag" }, "not shared yet"));
    const row = el(
      "li",
      {
        class: "hit",
        role: "option",
        id: `hit-${number}`,
        tabindex: number === 0 ? 0 : -1,
        "aria-selected": "false",
        onclick: () => {
          if (!String(getSelection())) this.open(number);
        },
        onfocus: () => this.choose(number, false),
      },
      meta,
      turn && hit.role !== "user" ? el("p", { class: "question", title: turn.question }, turn.question) : null,
      el("p", { class: "snippet" }, marked(hit.snippet || hit.text, hit.marks)),
    );
    if (hit.alike?.length) row.append(el("p", { class: "quiet small" }, `${counted(hit.alike.length, "text")} almost the same left out`));
    if (hit.explain) row.append(el("p", { class: "scores" }, why(hit)));
    return row;
  }

  choose(number, focus = true) {
    if (number < 0 || number >= this.hits.length) return;
    const rows = this.rows;
    if (this.chosen >= 0 && rows[this.chosen]) {
      rows[this.chosen].setAttribute("aria-selected", "false");
      rows[this.chosen].tabIndex = -1;
    }
    this.chosen = number;
    rows[number].setAttribute("aria-selected", "true");
    rows[number].tabIndex = 0;
    if (focus) {
      rows[number].focus({ preventScroll: true });
      rows[number].scrollIntoView({ block: "nearest" });
    }
  }

  /** Opens a hit beside the list, as a step of the history; from one hit to the next it is the same step. */
  open(number) {
    this.choose(number);
    go(`${this.address()}/${encodeURIComponent(placedId(this.hits[number]))}`, { replace: this.reader.isOpen });
  }

  address() {
    return location.hash.split("/").slice(0, 3).join("/");
  }

  /** Shows the text that the address names; none if it names none. */
  read(id) {
    const number = this.hits.findIndex((hit) => placedId(hit) === id);
    if (!id || number < 0) {
      if (this.reader.isOpen) this.reader.close();
      return;
    }
    if (this.reader.isOpen && this.reader.hit === this.hits[number]) return;
    this.choose(number, !this.reader.isOpen && !document.activeElement?.closest?.(".hit"));
    this.split.classList.add("reading");
    this.reader.open(this.hits[number], { only: (name, value) => this.only({ [name]: value }) });
  }

  /** The reader was closed. */
  back() {
    this.split.classList.remove("reading");
    if (here().rest[1]) go(this.address(), { replace: true });
    if (this.rows[this.chosen]) this.choose(this.chosen);
  }

  gone(id) {
    const left = this.hits.filter((hit) => hit.id !== id);
    this.empty();
    this.draw(left);
    this.focus();
  }

  key(event, writing) {
    const down = event.key === "ArrowDown" || (event.key === "j" && !writing);
    const up = event.key === "ArrowUp" || (event.key === "k" && !writing);
    const reading = event.target.closest?.(".reader");
    if (event.key === "Escape") {
      if (this.reader.isOpen) this.reader.close();
      else if (!writing) go("#/");
    }
    else if (writing && event.target !== this.input) return;
    else if (reading && !["j", "k"].includes(event.key)) return;
    else if (down && this.hits.length) {
      event.preventDefault();
      this.step(writing ? 0 : this.chosen + 1);
    } else if (up && !writing && this.hits.length) {
      event.preventDefault();
      if (this.chosen <= 0) this.focus();
      else this.step(this.chosen - 1);
    } else if (event.key === "Enter" && !writing && event.target.closest?.(".hit")) {
      event.preventDefault();
      this.open(this.chosen);
      this.reader.focus();
    }
  }

  step(number) {
    if (number >= this.hits.length && this.more && !this.rest.disabled) this.next();
    else this.choose(Math.min(number, this.hits.length - 1));
    if (this.reader.isOpen && this.chosen >= 0) this.open(this.chosen);
  }
}

/** The id of a result, with the place where it was found if its words stand in others too. */
const placedId = (hit) => (hit.place ? `${hit.id}@${hit.place}` : hit.id);

/** Only the weak hits at the end are called so, not one that was put before a good one. */
function settled(hits) {
  const good = hits.findLastIndex((hit) => !hit.weak && !isUnanswered(hit));
  return hits.map((hit, number) => ({ ...hit, weak: hit.weak && number > good }));
}

/** Hits of one conversation or document together; weak ones and questions without an answer by themselves, so that nothing that
    answers stands behind them. */
function grouped(hits) {
  const groups = new Map();
  for (const hit of hits) {
    const origin = { document: [hit.source, hit.path], conversation: hit.session ? [hit.agent, hit.session] : [hit.id] }[hit.kind] || [hit.id];
    const key = JSON.stringify([hit.kind, hit.weak || isUnanswered(hit), ...origin]);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(hit);
  }
  return [...groups.values()];
}

function isUnanswered(hit) {
  return Boolean(hit.turn?.question) && !hit.turn.answered;
}

function kindOf(hit) {
  if (hit.kind === "memory") return hit.memory || "memory";
  return hit.kind;
}

function place(rank) {
  const number = rank + 1;
  const ending = [11, 12, 13].includes(number % 100) ? "th" : ["th", "st", "nd", "rd"][number % 10] || "th";
  return `${number}${ending}`;
}

/** Where a score comes from; ranks that come from the search count from 0. */
function why({ score, relevance, explain }) {
  const parts = [`score ${score.toPrecision(3)}`, `${Math.round(100 * relevance)}% likely to answer`];
  const { keyword_rank: words, vector_rank: meaning, deep_rank: deep } = explain;
  const strength = Math.round(100 * explain.keyword_strength);
  parts.push(words == null ? "not found by its words" : `${place(words)} by words (${strength}% of the best match, weight ${explain.keyword_weight.toFixed(1)})`);
  parts.push(meaning == null ? "not found by its meaning" : `${place(meaning)} by meaning (likeness ${explain.similarity.toFixed(2)})`);
  if (explain.recency != null) parts.push(`times ${explain.recency.toFixed(2)} for its age`);
  if (deep != null) parts.push(`${place(deep - 1)} before the model${explain.judgement == null ? ", which did not judge it" : ` gave it ${explain.judgement} of 10`}`);
  return parts.join(" · ");
}

const HOW = {
  fallen_back: "searched without a language model",
  provider: "language model",
  host: "asked at",
  expansions: "also searched for",
  expansion_skipped: "searched in no other words",
  candidates: "texts to judge",
  from_cache: "judged in an earlier search",
  tokens_in: "tokens sent",
  tokens_out: "tokens received",
  seconds: "seconds it took",
  dollars_estimated: "dollars, about",
  failure: "what failed",
};

/** What a language model had to do with it. */
function how(explain) {
  const said = Object.entries(explain).filter(([, value]) => value !== "" && !(Array.isArray(value) && !value.length));
  return said.map(([name, value]) => `${HOW[name] || name.replaceAll("_", " ")}: ${Array.isArray(value) ? value.join("; ") : value}`).join(" · ");
}
