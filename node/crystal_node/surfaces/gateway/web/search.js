// Searching: the question, its filters, what was found by conversation, and the text that is read beside it.

import { post } from "/api.js";
import { ago, announce, choice, counted, el, empty, failure, field, marked, skeleton } from "/dom.js";
import { Reader } from "/reading.js";

const PAGE = 20;
const FAST = "fast";
const KINDS = [["", "Everything"], ["conversation", "Conversations"], ["memory", "Memories"], ["document", "Documents"]];
const AGES = [["", "Any time"], ["24h", "Last 24 hours"], ["7d", "Last 7 days"], ["30d", "Last 30 days"], ["365d", "Last year"]];
const ROLES = [["", "Anybody"], ["user", "You"], ["assistant", "The agent"]];
const BYS = [["turn", "Questions with answers"], ["message", "Single messages"]];
const DEPTHS = [["fast", "Fast"], ["deep", "With a language model"]];

export function searchView(root) {
  return new Search(root);
}

class Search {
  constructor(root) {
    this.hits = [];
    this.rows = [];
    this.found = 0;
    this.chosen = -1;
    this.running = null;
    this.asked = null;
    this.more = false;
    this.input = el("input", {
      type: "search",
      id: "query",
      placeholder: "What was said, decided, remembered…",
      "aria-label": "Search the memory",
      autocomplete: "off",
      spellcheck: "false",
      enterkeyhint: "search",
      maxlength: 16000,
    });
    this.controls = this.filters();
    this.ways = this.switches();
    this.badge = el("span", { class: "badge", hidden: true });
    this.said = el("p", { class: "said quiet" });
    this.list = el("ul", { class: "hits", role: "listbox", "aria-label": "Results", tabindex: -1 });
    this.rest = el("button", { type: "button", class: "wide", hidden: true, onclick: () => this.next() }, "Show more");
    this.place = el("div", { class: "results" }, this.said, this.list, this.rest);
    this.reader = new Reader({ closed: () => this.back(), gone: (id) => this.gone(id) });
    this.split = el("div", { class: "split" }, this.place, this.reader.root);
    root.append(
      el(
        "form",
        { class: "searching", role: "search", onsubmit: (event) => this.submit(event) },
        el("div", { class: "searchbar" }, this.input, el("button", { type: "submit", class: "primary" }, "Search")),
        this.ways.root,
        el(
          "details",
          { class: "filters" },
          el("summary", {}, "Filters ", this.badge),
          el("div", { class: "grid" }, Object.values(this.controls).map(([label, input]) => field(label, input))),
          el("div", { class: "row" }, el("button", { type: "button", onclick: () => this.clear() }, "Clear filters")),
        ),
      ),
      this.split,
    );
    root.addEventListener("change", (event) => {
      if (event.target.closest(".filters, .ways")) this.refilter();
    });
    this.welcome();
  }

  filters() {
    const text = (name) => el("input", { type: "text", name, autocomplete: "off", spellcheck: "false", maxlength: 1000 });
    return {
      kind: ["Kind", choice(KINDS, "", { name: "kind" })],
      since: ["Time", choice(AGES, "", { name: "since" })],
      role: ["Said by", choice(ROLES, "", { name: "role" })],
      agent: ["Agent", text("agent")],
      project: ["Project", text("project")],
      session: ["Conversation", text("session")],
      source: ["Source", text("source")],
      depth: ["How", choice(DEPTHS, FAST, { name: "depth" })],
      explain: ["Scores", choice([["", "Hidden"], ["yes", "Explained"]], "", { name: "explain" })],
    };
  }

  /** What is found, turns or messages, and whether thinking is. */
  switches() {
    const by = BYS.map(([value, text]) =>
      el("label", {}, el("input", { type: "radio", name: "by", value, checked: value === BYS[0][0] }), el("span", {}, text)),
    );
    const thinking = el("input", { type: "checkbox", name: "thinking" });
    const root = el(
      "div",
      { class: "ways" },
      el("div", { class: "switch", role: "radiogroup", "aria-label": "What is found" }, by),
      el("label", {}, thinking, el("span", {}, "Thinking, too")),
    );
    return { root, by: () => root.querySelector("[name=by]:checked").value, thinking };
  }

  show() {
    if (!this.hits.length) this.focus();
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
      empty(
        "Search your memory",
        "Words and meaning both count. Everything is answered from this machine's own disk.",
        el("p", { class: "quiet" }, el("kbd", {}, "/"), " to search, ", el("kbd", {}, "?"), " for all keys"),
      ),
    );
  }

  request(offset) {
    const values = Object.fromEntries(Object.entries(this.controls).map(([name, [, input]]) => [name, input.value.trim()]));
    const request = { query: this.input.value.trim(), limit: PAGE, offset, depth: values.depth };
    for (const name of ["since", "role", "agent", "project", "session", "source", "kind"]) {
      if (values[name]) request[name] = values[name];
    }
    if (values.explain) request.explain = true;
    request.by = this.ways.by();
    if (this.ways.thinking.checked) request.thinking = true;
    return request;
  }

  submit(event) {
    event?.preventDefault();
    if (!this.input.value.trim()) {
      this.running?.abort();
      this.reader.close(true);
      this.welcome();
      return;
    }
    this.ask(this.request(0));
  }

  refilter() {
    const set = Object.values(this.controls).filter(([, input]) => input.value.trim() && input.value !== FAST).length;
    this.badge.hidden = set === 0;
    this.badge.textContent = set;
    if (this.input.value.trim()) this.submit();
  }

  clear() {
    for (const [name, [, input]] of Object.entries(this.controls)) input.value = name === "depth" ? FAST : "";
    this.refilter();
  }

  /** Narrows to what one hit is from. */
  only(name, value) {
    this.controls[name][1].value = value;
    document.querySelector(".filters").open = true;
    this.refilter();
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
    const heading = el("div", { class: "meta", id: name }, el("span", { class: `kind ${hit.kind}` }, kindOf(hit)));
    for (const [kind, text] of [["where", where], ["tool", hit.source], ["device", hit.device_name], ["agent", hit.agent]]) {
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

  open(number) {
    this.choose(number);
    this.split.classList.add("reading");
    this.reader.open(this.hits[number], { only: (name, value) => this.only(name, value) });
  }

  back() {
    this.split.classList.remove("reading");
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
    if (event.key === "Escape" && this.reader.isOpen) this.reader.close();
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
