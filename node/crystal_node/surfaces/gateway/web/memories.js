// Memories: what was kept for good. They are looked through, changed, put aside and forgotten here.

import { get, patch, post } from "/api.js";
import { ago, announce, choice, confirmed, counted, dialog, el, empty, failure, field, skeleton, toast } from "/dom.js";

const PAGE = 50;
const CATEGORIES = [["fact", "Fact"], ["preference", "Preference"], ["event", "Event"], ["opinion", "Opinion"], ["skill", "Skill"]];
const STATES = [["active", "In use"], ["superseded", "Replaced"], ["retired", "Put aside"], ["any", "All"]];

export function memoriesView(root) {
  return new Memories(root);
}

class Memories {
  constructor(root) {
    this.looked = 0;
    this.category = choice([["", "All categories"], ...CATEGORIES], "", { "aria-label": "Category", onchange: () => this.look() });
    this.status = choice(STATES, "active", { "aria-label": "State", onchange: () => this.look() });
    this.list = el("ul", { class: "cards memories", "aria-label": "Memories" });
    this.rest = el("button", { type: "button", class: "wide", hidden: true, onclick: () => this.look(this.list.children.length) }, "Show more");
    this.place = el("div", {}, this.list, this.rest);
    root.append(
      el("div", { class: "row head" }, el("h1", { class: "grow" }, "Memories"), el("button", { type: "button", class: "primary", onclick: () => this.add() }, "Remember…")),
      el("p", { class: "lead" }, "What is kept for good, on every device."),
      el("div", { class: "row tight" }, this.category, this.status),
      this.place,
    );
  }

  show() {
    this.look();
  }

  async look(offset = 0) {
    this.place.querySelector(".empty")?.remove();
    const waiting = skeleton(offset ? 1 : 4);
    if (!offset && !this.list.children.length) this.place.append(waiting);
    this.looked += 1;
    const { looked } = this;
    const query = new URLSearchParams({ status: this.status.value, limit: PAGE, offset });
    if (this.category.value) query.set("category", this.category.value);
    try {
      const found = await get(`/api/memories?${query}`);
      if (looked !== this.looked) return; // an answer that a later one overtook
      const cards = found.memories.map((memory) => this.card(memory));
      if (offset) this.list.append(...cards);
      else this.list.replaceChildren(...cards);
      this.rest.hidden = !found.more;
      if (!this.list.children.length) {
        this.place.append(
          this.category.value || this.status.value !== "active"
            ? empty("No memory is like that", "Choose another category or state.")
            : empty("Nothing is remembered yet", "Agents keep memories as they work, and you can:", el("pre", {}, el("code", {}, 'crystal remember "…"'))),
        );
      }
      announce(`${counted(this.list.children.length, "memory", "memories")} shown`);
    } catch (error) {
      if (looked !== this.looked) return;
      this.list.replaceChildren();
      this.rest.hidden = true;
      this.place.append(failure(error, () => this.look()));
    } finally {
      waiting.remove();
    }
  }

  key(event, writing) {
    if (writing) return;
    const cards = [...this.list.children];
    const at = cards.findIndex((card) => card.contains(document.activeElement));
    const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key];
    if (step && cards.length) {
      event.preventDefault();
      const next = cards[Math.min(Math.max(at + step, 0), cards.length - 1)];
      next.focus({ preventScroll: true });
      next.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter" && at >= 0 && document.activeElement === cards[at]) {
      event.preventDefault();
      cards[at].querySelector("button")?.click();
    }
  }

  card(memory) {
    const state = memory.status === "active" ? null : el("span", { class: "state still" }, memory.status === "retired" ? "put aside" : "replaced");
    const card = el(
      "li",
      { class: `card memory ${memory.status}`, tabindex: 0 },
      el(
        "div",
        { class: "meta" },
        el("span", { class: "kind memory" }, memory.category),
        state,
        memory.confidence < 100 ? el("span", { class: "confidence", title: "How sure it is" }, `${memory.confidence} % sure`) : null,
        memory.project ? el("span", { class: "project", title: "Agents are given it in this project alone" }, `for ${memory.project}`) : null,
        memory.agent ? el("span", {}, memory.agent) : null,
        ago(memory.changed_at || memory.created_at),
        memory.provisional ? el("span", { class: "flag" }, "not shared yet") : null,
      ),
      el("p", { class: "text" }, memory.text),
    );
    const button = (text, action, kind = null) => el("button", { type: "button", class: kind, onclick: action }, text);
    card.append(
      el(
        "div",
        { class: "row actions" },
        memory.status === "superseded" ? null : button("Edit", () => this.edit(memory)),
        memory.status === "active" ? button("Put aside", () => this.change(memory, { status: "retired" }, "Put aside: searches leave it out")) : null,
        memory.status !== "active" ? button("Use again", () => this.change(memory, { status: "active" }, "In use again")) : null,
        button("History", () => this.history(memory)),
        button("Forget…", () => this.forget(memory), "danger quiet"),
      ),
    );
    return card;
  }

  async change(memory, changes, said) {
    try {
      await patch(`/api/memories/${memory.id}`, changes);
      toast(said);
      await this.look();
    } catch (error) {
      toast(`${error.message}. ${error.hint}`, "bad");
    }
  }

  async edit(memory) {
    const changes = await this.form("Edit this memory", memory, "Save");
    if (!changes) return;
    const changed = Object.fromEntries(Object.entries(changes).filter(([name, value]) => value !== memory[name]));
    if ("project" in changed && changed.project === "") {
      delete changed.project;
      changed.scope = "everywhere";
    }
    if (Object.keys(changed).length) await this.change(memory, changed, "Saved");
  }

  async add() {
    const made = await this.form("Remember", { text: "", category: "fact", confidence: 100, project: "" }, "Remember");
    if (!made) return;
    if (!made.project) made.scope = "everywhere";
    try {
      const done = await post("/api/memories", made);
      toast(done.merged ? "That was remembered already" : "Remembered. Your other devices follow.");
      await this.look();
      if (done.alike.length && (await this.replaces(made.text, done.alike))) {
        await post("/api/memories", { ...made, supersedes: done.alike.map((each) => each.id) });
        toast("It took the place of what said almost the same");
        await this.look();
      }
    } catch (error) {
      toast(`${error.message}. ${error.hint}`, "bad");
    }
  }

  /** Whether a new memory takes the place of those that say almost the same. */
  replaces(text, alike) {
    return dialog("This is almost the same", (answer) => [
      el("p", {}, "New:"),
      el("blockquote", { class: "quoted" }, text),
      el("p", {}, "There already:"),
      ...alike.map((each) => el("blockquote", { class: "quoted" }, each.text)),
      el(
        "div",
        { class: "row end" },
        el("button", { type: "button", onclick: () => answer(false) }, "Keep both"),
        el("button", { type: "button", class: "primary", autofocus: true, onclick: () => answer(true) }, "Replace the old"),
      ),
    ]);
  }

  /** The projects to choose from; the memory's own is among them though it is not known here yet. */
  async projects(memory) {
    const known = await get("/api/projects").catch(() => ({ projects: [] }));
    const names = known.projects.map((each) => each.name);
    if (memory.project && !names.includes(memory.project)) names.unshift(memory.project);
    return [["", "Everywhere"], ...names.map((name) => [name, name])];
  }

  async form(title, memory, word) {
    const projects = await this.projects(memory);
    return dialog(title, (answer) => {
      const text = el("textarea", { rows: 5, required: true, autofocus: true, maxlength: 32000 });
      text.value = memory.text;
      const category = choice(CATEGORIES.some(([key]) => key === memory.category) ? CATEGORIES : [...CATEGORIES, [memory.category, memory.category]], memory.category);
      const project = choice(projects, memory.project);
      const shown = el("output", {}, `${memory.confidence} %`);
      const confidence = el("input", { type: "range", min: 0, max: 100, step: 5, oninput: () => (shown.textContent = `${confidence.value} %`) });
      confidence.value = memory.confidence;
      return el(
        "form",
        {
          class: "stack",
          onsubmit: (event) => {
            event.preventDefault();
            if (text.value.trim()) answer({ text: text.value.trim(), category: category.value, confidence: Number(confidence.value), project: project.value });
          },
        },
        field("Text", text, memory.text ? "A changed text is a new memory that replaces this one." : ""),
        field("Category", category),
        field("For", project, "Where agents are given it."),
        el("label", { class: "field" }, el("span", {}, "How sure ", shown), confidence),
        el("div", { class: "row end" }, el("button", { type: "button", onclick: () => answer(null) }, "Cancel"), el("button", { type: "submit", class: "primary" }, word)),
      );
    });
  }

  async history(memory) {
    const body = el("div", { class: "stack" }, skeleton(2));
    dialog("History", () => [el("blockquote", { class: "quoted" }, memory.text), body], { wide: true });
    try {
      const found = await get(`/api/memories/${memory.id}/history`);
      body.replaceChildren(
        found.events.length
          ? el(
              "ol",
              { class: "history" },
              found.events.map((each) => el(
                "li",
                {},
                el("strong", {}, each.what),
                el("span", {}, [each.category, each.project && `for ${each.project}`, `${each.confidence} % sure`, each.status === "active" ? "" : each.status, each.agent, each.device].filter(Boolean).join(" · ")),
                ago(each.at),
                each.id === memory.id ? null : el("blockquote", { class: "quoted" }, each.text),
              )),
            )
          : el("p", { class: "quiet" }, "It has not been changed."),
      );
    } catch (error) {
      body.replaceChildren(failure(error));
    }
  }

  async forget(memory) {
    const sure = await confirmed(
      "Forget this memory?",
      "It goes from every device, for good. To leave it out of searches and keep it, put it aside instead.",
      "Forget it",
      memory.text,
    );
    if (!sure) return;
    try {
      await post("/api/forget", { ids: [memory.id] });
      toast("Forgotten. Your other devices follow.");
      await this.look();
    } catch (error) {
      toast(`${error.message}. ${error.hint}`, "bad");
    }
  }
}
