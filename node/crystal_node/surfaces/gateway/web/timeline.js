// A virtual list that scrolls with the page: only rows near the screen are in the document, and fetched when they come near.
// All rows have one height (`--row` of the list), so that a place in the list is a place on the page.

import { el } from "/dom.js";

const PAGE = 100;
const BEYOND = 8;
const SETTLE_MS = 80;
const ROWS_PER_FRAME_FAST = 60;

export class Timeline {
  /** `fetch(offset, limit, signal)` gives `{ items, total }`; `row(item, before)` the content of a row; `failed(error)` is told what went wrong. */
  constructor({ label, fetch, row, failed }) {
    this.fetch = fetch;
    this.row = row;
    this.failed = failed;
    this.root = el("ul", { class: "timeline", "aria-label": label });
    this.total = 0;
    this.pages = new Map();
    this.rows = new Map();
    this.chosen = -1;
    this.running = new AbortController();
    this.frame = 0;
    this.top = 0;
    this.settled = 0;
    addEventListener("scroll", () => this.soon(), { passive: true });
    new ResizeObserver(() => this.soon(true)).observe(this.root);
  }

  /** Starts over with a first page. */
  async load() {
    this.running.abort();
    this.running = new AbortController();
    const { signal } = this.running;
    const first = await this.fetch(0, PAGE, signal);
    if (signal.aborted) return;
    this.pages = new Map([[0, first.items]]);
    this.resized(first.total);
    this.clear();
    this.draw();
  }

  /** Starts over only if the first page has changed. */
  async refresh() {
    const { signal } = this.running;
    const first = await this.fetch(0, PAGE, signal);
    if (signal.aborted || (first.total === this.total && JSON.stringify(first.items) === JSON.stringify(this.pages.get(0)))) return;
    const chosen = this.chosen;
    this.pages = new Map([[0, first.items]]);
    this.resized(first.total);
    this.clear();
    this.chosen = Math.min(chosen, this.total - 1);
    this.draw();
  }

  resized(total) {
    this.total = total;
    this.root.style.height = `${total * this.height()}px`;
  }

  clear() {
    this.chosen = -1;
    this.rows.clear();
    this.root.replaceChildren();
  }

  height() {
    return Number.parseFloat(getComputedStyle(this.root).getPropertyValue("--row")) || 72;
  }

  item(number) {
    const page = this.pages.get(Math.floor(number / PAGE));
    return Array.isArray(page) ? page[number % PAGE] : undefined;
  }

  soon(resize = false) {
    if (resize && this.total) this.resized(this.total);
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  draw() {
    if (!this.total || !this.root.checkVisibility()) return;
    const height = this.height();
    const top = this.root.getBoundingClientRect().top;
    const first = Math.max(Math.floor(-top / height) - BEYOND, 0);
    const last = Math.min(Math.ceil((innerHeight - top) / height) + BEYOND, this.total) - 1;
    const isFast = Math.abs(first - this.top) > ROWS_PER_FRAME_FAST;
    this.top = first;
    for (const [number, node] of this.rows) {
      const isSeen = number >= first && number <= last;
      if (!isSeen && !node.contains(document.activeElement)) {
        node.remove();
        this.rows.delete(number);
      }
    }
    for (let number = first; number <= last; number += 1) this.place(number, height);
    clearTimeout(this.settled);
    // Dragging the scroll bar through years does not wait for all that lies between.
    if (isFast) this.settled = setTimeout(() => this.need(first, last), SETTLE_MS);
    else this.need(first, last);
  }

  place(number, height) {
    const item = this.item(number);
    const known = this.rows.get(number);
    if (known && known.dataset.waits === undefined) {
      known.style.transform = `translateY(${number * height}px)`;
      return;
    }
    if (known && !item) return;
    const node = el("li", { "aria-setsize": this.total, "aria-posinset": number + 1 }, item ? this.row(item, number ? this.item(number - 1) : null) : el("div", { class: "waits" }));
    if (!item) node.dataset.waits = "";
    node.style.transform = `translateY(${number * height}px)`;
    if (known) known.replaceWith(node);
    else {
      // In the list's order, which is the order of the Tab key and of a screen reader.
      const next = this.rows.get(number + 1) ?? this.rows.get(Math.min(...[...this.rows.keys()].filter((each) => each > number)));
      this.root.insertBefore(node, next ?? null);
    }
    this.rows.set(number, node);
  }

  need(first, last) {
    for (let page = Math.floor(first / PAGE); page <= Math.floor(last / PAGE); page += 1) {
      if (!this.pages.has(page)) this.bring(page);
    }
  }

  async bring(page) {
    const { signal } = this.running;
    this.pages.set(page, "waits");
    try {
      const found = await this.fetch(page * PAGE, PAGE, signal);
      if (signal.aborted) return;
      this.pages.set(page, found.items);
      if (found.total !== this.total) this.resized(found.total);
      this.draw();
    } catch (error) {
      if (this.pages.get(page) === "waits") this.pages.delete(page);
      if (error.name !== "AbortError") this.failed(error);
    }
  }

  /** Moves the focus by so many rows. */
  step(by) {
    if (!this.total) return;
    const at = [...this.rows].find(([, node]) => node.contains(document.activeElement))?.[0] ?? this.chosen;
    this.choose(Math.min(Math.max(at + by, 0), this.total - 1));
  }

  choose(number) {
    this.chosen = number;
    const height = this.height();
    const top = this.root.getBoundingClientRect().top + number * height;
    const edge = document.querySelector(".bar").getBoundingClientRect().bottom + 8;
    if (top < edge) scrollBy(0, top - edge);
    else if (top + height > innerHeight - 8) scrollBy(0, top + height - innerHeight + 80);
    this.draw();
    this.rows.get(number)?.querySelector("a")?.focus({ preventScroll: true });
  }
}
