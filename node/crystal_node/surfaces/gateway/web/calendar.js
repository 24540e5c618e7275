// A month of days, darker where more was said. Pressing a day shows that day alone; pressing it again shows all.

import { el, svg } from "/dom.js";

const LEVELS = 4;
const WHOLE = new Intl.DateTimeFormat("en-GB", { weekday: "long", day: "numeric", month: "long", year: "numeric" });
const dayOf = (date) => `${date.getFullYear()}-${String(date.getMonth() + 1).padStart(2, "0")}-${String(date.getDate()).padStart(2, "0")}`;
/** The local date of "2026-01-31". */
export const dateOf = (day) => new Date(Number(day.slice(0, 4)), Number(day.slice(5, 7)) - 1, Number(day.slice(8, 10)));

export class Calendar {
  /** `choose(since, until)` is told which days, as "2026-01-31"; "" for all. */
  constructor(choose) {
    this.choose = choose;
    this.days = new Map();
    this.month = null;
    this.title = el("h2", { "aria-live": "polite" });
    this.before = this.step(-1, "Previous month", "m14 6-6 6 6 6");
    this.after = this.step(1, "Next month", "m10 6 6 6-6 6");
    this.whole = el("button", { type: "button", class: "plain small", hidden: true, onclick: () => this.chooseMonth() });
    this.grid = el("table", { class: "month" });
    this.root = el("div", { class: "card calendar", role: "group", "aria-label": "Calendar of what was said", hidden: true }, el("div", { class: "row slim" }, this.title, el("span", { class: "grow" }), this.before, this.after), this.grid, this.whole);
  }

  step(by, label, path) {
    const arrow = svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, svg("path", { d: path }));
    return el("button", { type: "button", class: "icon small", "aria-label": label, onclick: () => this.turn(by) }, arrow);
  }

  /** Shows these days of the activity, and which are chosen. */
  show(days, since, until) {
    this.days = new Map(days.filter((each) => each.day).map((each) => [each.day, each]));
    this.since = since;
    this.until = until;
    this.earliest = [...this.days.keys()][0] ?? dayOf(new Date());
    this.latest = [...this.days.keys()].at(-1) ?? dayOf(new Date());
    if (since && since === this.shownFor) {
      this.draw();
      return;
    }
    if (since || this.month === null) {
      const day = dateOf(since || this.latest);
      this.month = new Date(day.getFullYear(), day.getMonth(), 1);
    }
    this.shownFor = since;
    this.draw();
  }

  turn(by) {
    this.month = new Date(this.month.getFullYear(), this.month.getMonth() + by, 1);
    this.draw();
  }

  last() {
    return new Date(this.month.getFullYear(), this.month.getMonth() + 1, 0);
  }

  chooseMonth() {
    const [first, last] = [dayOf(this.month), dayOf(this.last())];
    this.shownFor = first;
    this.choose(...(this.isWhole() ? ["", ""] : [first, last]));
  }

  isWhole() {
    return this.since === dayOf(this.month) && this.until === dayOf(this.last());
  }

  draw() {
    this.root.hidden = false; // until the days are known there is nothing to press
    const name = this.month.toLocaleDateString("en", { month: "long", year: "numeric" });
    this.title.textContent = name;
    this.whole.hidden = false;
    this.whole.textContent = this.isWhole() ? "Show all days" : `Only ${name}`;
    const month = dayOf(this.month).slice(0, 7);
    this.before.disabled = month <= this.earliest.slice(0, 7);
    this.after.disabled = month >= this.latest.slice(0, 7);
    const most = Math.max(...[...this.days.values()].map((each) => each.texts), 1);
    const rows = [];
    const blanks = (this.month.getDay() + 6) % 7;
    const cells = Array.from({ length: blanks }, () => el("td"));
    for (let day = 1; day <= this.last().getDate(); day += 1) cells.push(this.cell(new Date(this.month.getFullYear(), this.month.getMonth(), day), most));
    while (cells.length % 7) cells.push(el("td"));
    while (cells.length) rows.push(el("tr", {}, cells.splice(0, 7)));
    const heads = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
    this.grid.replaceChildren(
      el("caption", { class: "unseen" }, `What was said in ${name}`),
      el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col", abbr: head }, head.slice(0, 2))))),
      el("tbody", {}, rows),
    );
  }

  cell(date, most) {
    const day = dayOf(date);
    const found = this.days.get(day);
    const isToday = day === dayOf(new Date());
    if (!found) return el("td", {}, el("span", { class: isToday ? "today" : null }, date.getDate()));
    const isChosen = Boolean(this.since) && day >= this.since && (!this.until || day <= this.until);
    const level = Math.max(Math.ceil((LEVELS * Math.sqrt(found.texts)) / Math.sqrt(most)), 1);
    const whole = WHOLE.format(date);
    const text = `${whole}: ${found.conversations} ${found.conversations === 1 ? "conversation" : "conversations"}, ${found.texts} ${found.texts === 1 ? "message" : "messages"}`;
    const isOnly = isChosen && this.since === day && this.until === day;
    return el(
      "td",
      {},
      el(
        "button",
        {
          type: "button",
          class: `day level-${level}${isToday ? " today" : ""}`,
          title: text,
          "aria-label": text,
          "aria-pressed": String(isChosen),
          onclick: () => {
            this.shownFor = day;
            this.choose(...(isOnly ? ["", ""] : [day, day]));
          },
        },
        date.getDate(),
      ),
    );
  }
}
