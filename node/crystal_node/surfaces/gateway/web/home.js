// The first screen: problems, recent conversations, and what to filter them by.

import { addressOf, go, stateOf } from "/address.js";
import { get } from "/api.js";
import { Calendar, dateOf } from "/calendar.js";
import { choices, chosenChips, counted as countedValues, shortName } from "/choices.js";
import { ago, announce, counted, el, empty, exact, failure, skeleton } from "/dom.js";
import { problemsList, problemsOf } from "/problems.js";
import { Timeline } from "/timeline.js";

const FILTERS = ["project", "device", "tool", "agent", "since", "until"];
const MEMORIES = 3;
const LOOK_MS = 20_000;
const HOUR = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short" });
const OLD_DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });

export function homeView(root) {
  return new Home(root);
}

class Home {
  constructor(root) {
    this.state = {};
    this.drawn = null;
    this.timer = null;
    this.wide = matchMedia("(min-width: 960px)");
    this.problems = el("div", { class: "problems" });
    this.said = el("p", { class: "said quiet" });
    this.chips = el("div", { class: "chips" });
    this.waiting = skeleton(6);
    this.timeline = new Timeline({
      label: "Conversations, the latest first",
      fetch: (offset, limit, signal) => this.fetch(offset, limit, signal),
      row: (conversation, before) => conversationRow(conversation, before),
      failed: (error) => this.wrong(error),
    });
    this.calendar = new Calendar((since, until) => this.only({ since, until }));
    this.lists = el("div", { class: "lists" });
    this.remembered = el("div", {});
    this.rail = el(
      "details",
      { class: "rail", open: this.wide.matches },
      el("summary", {}, "Calendar, projects and filters"),
      el("div", { class: "rail-body" }, this.calendar.root, this.lists, this.remembered),
    );
    this.wide.addEventListener("change", () => (this.rail.open = this.wide.matches));
    this.place = el("div", { class: "lately" }, this.chips, this.waiting, this.timeline.root);
    root.append(
      this.problems,
      el("div", { class: "row head" }, el("h1", {}, "Recent conversations"), this.said),
      el("div", { class: "home" }, this.rail, this.place),
    );
  }

  show([name] = []) {
    const state = (name && stateOf(name)) || {};
    const key = JSON.stringify(state);
    this.state = state;
    if (key === this.drawn) this.look();
    else {
      this.drawn = key;
      this.load();
    }
    this.needs();
    this.timer ??= setInterval(() => {
      if (!document.hidden) this.look();
    }, LOOK_MS);
  }

  hide() {
    clearInterval(this.timer);
    this.timer = null;
  }

  only(changes) {
    go(addressOf("home", { ...this.state, ...changes }));
  }

  query(extra = {}) {
    const chosen = FILTERS.filter((name) => this.state[name]).map((name) => [name, this.state[name]]);
    return new URLSearchParams([...chosen, ...Object.entries(extra)]);
  }

  async fetch(offset, limit, signal) {
    const found = await get(`/api/conversations?${this.query({ limit, offset })}`, signal);
    return { items: found.conversations, total: found.total };
  }

  async load() {
    this.place.querySelector(".empty")?.remove();
    this.waiting.hidden = this.timeline.total > 0;
    this.place.setAttribute("aria-busy", "true");
    this.chips.replaceChildren(...this.chosen());
    try {
      await this.timeline.load();
      this.nothing();
      await this.aside();
      announce(this.said.textContent);
    } catch (error) {
      if (error.name !== "AbortError") this.wrong(error);
    } finally {
      this.waiting.hidden = true;
      this.place.removeAttribute("aria-busy");
    }
  }

  /** Looks for new conversations. */
  async look() {
    try {
      const before = this.timeline.total;
      await this.timeline.refresh();
      if (this.timeline.total !== before) {
        this.nothing();
        await this.aside();
      }
    } catch (error) {
      if (error.name !== "AbortError" && !this.timeline.total) this.wrong(error);
    }
  }

  wrong(error) {
    this.drawn = null;
    this.place.querySelector(".empty")?.remove();
    this.place.append(failure(error, () => this.show([location.hash.split("/")[2]])));
  }

  nothing() {
    this.place.querySelector(".empty")?.remove();
    this.rail.hidden = !this.timeline.total && !this.chosen().length;
    if (this.timeline.total) return;
    this.place.append(
      this.chosen().length
        ? empty("Nothing was said there", "Remove a filter to see more.")
        : empty("Nothing is recorded yet", "Talk to an agent on one of your machines, and the conversation appears here. To add this machine's old conversations:", el("pre", { tabindex: 0 }, el("code", {}, "crystal backfill"))),
    );
  }

  chosen() {
    const { project, device, tool, agent, since, until } = this.state;
    const days = since ? (since === until ? dayName(since) : `${dayName(since)} to ${dayName(until)}`) : "";
    const name = this.activity?.devices.find((each) => each.value === device)?.name ?? device;
    const chosen = [["project", "Project", project], ["device", "Device", name], ["tool", "Tool", tool], ["agent", "Agent", agent], ["since", "Days", days]];
    return chosenChips(chosen, (filter) => this.only(filter === "since" ? { since: "", until: "" } : { [filter]: "" }));
  }

  async aside() {
    const [activity, memories] = await Promise.all([
      get(`/api/activity?${this.query()}`),
      get(`/api/memories?limit=${MEMORIES}`).catch(() => ({ memories: [] })),
    ]);
    this.activity = activity;
    this.said.textContent = `${counted(activity.total, "conversation")}${this.chosen().length ? " found" : ""}`;
    this.chips.replaceChildren(...this.chosen());
    this.calendar.show(activity.days, this.state.since ?? "", this.state.until ?? "");
    const list = (title, name, values, options) =>
      choices(title, countedValues(values), this.state[name] ?? "", (value) => this.only({ [name]: value }), options);
    this.lists.replaceChildren(
      ...[
        list("Projects", "project", activity.projects, { least: 1, more: el("a", { href: "#/projects", class: "small" }, "All projects") }),
        list("Devices", "device", activity.devices, { least: 1 }),
        list("Tools", "tool", activity.tools, { least: 1 }),
        list("Agents", "agent", activity.agents),
      ].filter(Boolean),
    );
    this.remembered.replaceChildren(...(memories.memories.length ? [this.memories(memories.memories)] : []));
  }

  memories(found) {
    return el(
      "div",
      { class: "card remembered" },
      el("h2", {}, "Recent memories"),
      el("ul", {}, found.map((memory) => el("li", {}, el("p", { class: "clamped" }, memory.text), el("p", { class: "quiet small" }, memory.category, " · ", ago(memory.changed_at || memory.created_at))))),
      el("a", { href: "#/memories", class: "small" }, "All memories"),
    );
  }

  async needs() {
    try {
      const [status, { jobs }] = await Promise.all([get("/api/status"), get("/api/jobs")]);
      const list = problemsList(problemsOf(status, jobs));
      this.problems.replaceChildren(...(list ? [list] : []));
    } catch {
      this.problems.replaceChildren(); // what is wrong with asking at all is said where the conversations stand
    }
  }

  key(event, writing) {
    if (event.key === "ArrowDown" || (event.key === "j" && !writing)) {
      event.preventDefault();
      this.timeline.step(writing ? 0 : 1);
      if (writing) this.timeline.choose(0);
    } else if (writing) return;
    else if (event.key === "ArrowUp" || event.key === "k") {
      event.preventDefault();
      this.timeline.step(-1);
    } else if (event.key === "Escape" && this.chosen().length) go("#/");
  }
}

const dayName = (day) => OLD_DAY.format(dateOf(day));
const localDay = (iso) => (iso ? new Date(iso).toDateString() : "");

/** One conversation; the first of a day has the day before it. */
export function conversationRow(conversation, before) {
  const { ended_at: ended, began_at: began } = conversation;
  const isFirst = !before || localDay(before.ended_at) !== localDay(ended);
  const meta = [
    ["where", conversation.project, shortName(conversation.project)],
    ["tool", conversation.tool, conversation.tool],
    ["device", conversation.device_name, conversation.device_name],
  ];
  const last = ended ? new Date(ended) : null;
  return [
    el("span", { class: "gutter", "aria-hidden": "true" }, isFirst ? el("span", {}, dayWord(ended)) : null),
    el(
      "a",
      { class: "entry", href: `#/conversation/${conversation.id}` },
      el("span", { class: "title" }, conversation.title || "A conversation without a question"),
      el(
        "span",
        { class: "meta" },
        meta.filter(([, whole]) => whole).map(([kind, whole, text]) => el("span", { class: kind, title: whole }, text)),
        el("span", { class: "texts" }, counted(conversation.texts, "message")),
      ),
      last
        ? el("time", { datetime: ended, title: `${began && began !== ended ? `${exact(began)} to ` : ""}${exact(ended)}` }, el("span", { class: "day" }, `${dayWord(ended)} `), HOUR.format(last))
        : el("span", { class: "quiet" }, "undated"),
    ),
  ];
}

function dayWord(iso) {
  if (!iso) return "Undated";
  const date = new Date(iso);
  const now = new Date();
  const days = Math.round((new Date(now.getFullYear(), now.getMonth(), now.getDate()) - new Date(date.getFullYear(), date.getMonth(), date.getDate())) / 86_400_000);
  if (days === 0) return "Today";
  if (days === 1) return "Yesterday";
  return (date.getFullYear() === now.getFullYear() ? DAY : OLD_DAY).format(date).replace(",", "");
}
