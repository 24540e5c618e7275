// The projects in which something was said, the last used first, each with a link to its conversations.

import { addressOf } from "/address.js";
import { get } from "/api.js";
import { shortName } from "/choices.js";
import { ago, counted, el, empty, failure, skeleton } from "/dom.js";

export function projectsView(root) {
  return new Projects(root);
}

class Projects {
  constructor(root) {
    this.filter = el("input", { type: "search", "aria-label": "Filter projects", placeholder: "Filter by name", autocomplete: "off", spellcheck: "false", oninput: () => this.draw() });
    this.body = el("div", {}, skeleton(4));
    root.append(el("h1", {}, "Projects"), el("p", { class: "lead" }, "Repositories and folders where something was said, the last used first."), el("div", { class: "row tight" }, this.filter), this.body);
  }

  async show() {
    try {
      this.found = (await get("/api/projects")).projects;
      this.draw();
    } catch (error) {
      this.body.replaceChildren(failure(error, () => this.show()));
    }
  }

  draw() {
    const words = this.filter.value.trim().toLowerCase();
    const found = this.found.filter((each) => each.name && [each.name, each.repository, ...each.folders].some((name) => name.toLowerCase().includes(words)));
    this.filter.hidden = this.found.length < 8 && !words;
    if (!found.length) this.body.replaceChildren(words ? empty("No project matches", "Try a part of its name.") : empty("No project yet", "A folder or repository appears here once something is said in it."));
    else this.body.replaceChildren(el("ul", { class: "cards projects" }, found.map((project) => this.card(project))));
  }

  card(project) {
    const short = shortName(project.name);
    const names = [...new Set([project.name, ...project.folders])].filter((each) => each !== short);
    return el(
      "li",
      { class: "card project" },
      el("h2", {}, el("a", { href: addressOf("home", { project: project.name }), title: project.name }, short)),
      names.length ? el("p", { class: "quiet small clamped" }, names.join(" · ")) : null,
      el(
        "p",
        { class: "small meta" },
        el("span", {}, counted(project.conversations, "conversation")),
        project.memories ? el("span", {}, counted(project.memories, "memory", "memories")) : null,
        project.last_at ? el("span", {}, "last ", ago(project.last_at)) : null,
      ),
      project.linked.length ? el("p", { class: "small" }, `Linked with ${project.linked.map(shortName).join(", ")}`) : null,
    );
  }

  key(event, writing) {
    if (event.key === "Escape" && !writing && this.filter.value) {
      this.filter.value = "";
      this.draw();
    }
    const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key];
    if (!step || writing) return;
    const links = [...this.body.querySelectorAll("h2 a")];
    if (!links.length) return;
    event.preventDefault();
    links[Math.min(Math.max(links.indexOf(document.activeElement) + step, 0), links.length - 1)].focus();
  }
}
