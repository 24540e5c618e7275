// A view of what changes by itself: asked for every few seconds while it is on the screen, and drawn anew only when it differs.
// A view says how it asks (`ask`) and what it shows (`draw`).

import { el, failure, skeleton } from "/dom.js";

// Ages are words: "2 minutes ago" goes on although nothing else changed.
const AGES_MS = 30000;

export class Living {
  constructor(root, { title, lead, look, body = {} }) {
    this.body = el("div", body, skeleton(5));
    root.append(el("h1", {}, title), el("p", { class: "lead" }, lead), this.body);
    this.every = look;
    this.timer = null;
    this.drawn = "";
  }

  show() {
    this.look();
    this.timer ??= setInterval(() => {
      if (!document.hidden) this.look();
    }, this.every);
  }

  hide() {
    clearInterval(this.timer);
    this.timer = null;
  }

  async look() {
    try {
      const found = await this.ask();
      const state = JSON.stringify([found, Math.floor(Date.now() / AGES_MS)]);
      if (state === this.drawn) return;
      this.drawn = state;
      this.draw(found);
    } catch (error) {
      this.drawn = "";
      this.body.replaceChildren(failure(error, () => this.look()));
    }
  }
}
