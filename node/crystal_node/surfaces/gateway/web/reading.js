// Reading: one text whole, with what stands around it, in the conversation's order.

import { get, post } from "/api.js";
import { body, isFolded, roleName } from "/conversation.js";
import { ago, announce, confirmed, counted, cross, el, failure, skeleton, toast } from "/dom.js";

const AROUND = 3;
const AROUND_MAX = 50;

/** The id of a result, with the place where it was found if its words stand in others too. */
const placedId = (hit) => (hit.place ? `${hit.id}@${hit.place}` : hit.id);

/** A conversation's id in addresses, as the gateway makes it. */
async function conversationId(agent, session) {
  const encoder = new TextEncoder();
  const digest = await crypto.subtle.digest("SHA-256", encoder.encode(`${encoder.encode(agent).length}:${agent}${session}`));
  return Array.from(new Uint8Array(digest).slice(0, 16), (each) => each.toString(16).padStart(2, "0")).join("");
}

export class Reader {
  constructor({ closed, gone }) {
    this.closed = closed;
    this.gone = gone;
    this.isOpen = false;
    this.running = null;
    this.body = el("div", { class: "pieces" });
    this.head = el("div", { class: "reader-head" });
    this.root = el("aside", { class: "reader", "aria-label": "The text and what stands around it", tabindex: -1, hidden: true }, this.head, this.body);
  }

  focus() {
    this.root.focus();
  }

  async open(hit, { only }) {
    this.isOpen = true;
    this.hit = hit;
    this.only = only;
    this.before = AROUND;
    this.after = AROUND;
    this.root.hidden = false;
    this.header();
    this.body.replaceChildren(skeleton(3));
    await this.load();
    this.reveal();
  }

  /** Scrolls to the text that was asked for: within the reader where it scrolls by itself, else the page. */
  reveal() {
    const asked = this.body.querySelector(".asked");
    if (!asked) return;
    if (this.body.scrollHeight > this.body.clientHeight + 1) {
      const room = this.body.clientHeight - asked.clientHeight;
      this.body.scrollTop += asked.getBoundingClientRect().top - this.body.getBoundingClientRect().top - Math.max(room / 2, 12);
    } else if (getComputedStyle(this.body).overflowY !== "auto") {
      scrollTo({ top: 0 });
      asked.scrollIntoView({ block: asked.clientHeight < innerHeight / 2 ? "center" : "start" });
    }
  }

  close(silent = false) {
    if (!this.isOpen) return;
    this.isOpen = false;
    this.running?.abort();
    this.root.hidden = true;
    if (silent) this.root.parentElement?.classList.remove("reading");
    else this.closed();
  }

  /** The link to the whole conversation. */
  async toWhole() {
    const { hit } = this;
    if (!hit.session) return;
    const id = await conversationId(hit.agent, hit.session);
    if (hit === this.hit) this.whole.replaceChildren(el("a", { class: "chip on", href: `#/conversation/${id}/${hit.id}` }, "Whole conversation"));
  }

  header() {
    const { hit } = this;
    this.whole = el("span", { class: "chip-place" });
    this.toWhole();
    const filter = (name, label, value) =>
      value ? el("button", { type: "button", class: "chip", title: `Only this ${label}`, onclick: () => this.only(name, value) }, value) : null;
    this.head.replaceChildren(
      el(
        "div",
        { class: "row slim" },
        el("h2", {}, hit.kind === "memory" ? "Memory" : hit.kind === "document" ? "Document" : hit.title || "Conversation"),
        el("span", { class: "grow" }),
        el("button", { type: "button", onclick: () => this.copy() }, "Copy id"),
        el("button", { type: "button", class: "danger quiet", onclick: () => this.forget() }, "Forget…"),
        el("button", { type: "button", class: "icon", "aria-label": "Close", onclick: () => this.close() }, cross()),
      ),
      el(
        "div",
        { class: "chips" },
        filter("agent", "agent", hit.agent),
        filter("project", "project", hit.project || hit.repository),
        hit.kind === "document" ? filter("source", "source", hit.source) : null,
        hit.session ? el("button", { type: "button", class: "chip", title: hit.session, onclick: () => this.only("session", hit.session) }, "this conversation") : null,
        this.whole,
      ),
    );
  }

  async load() {
    this.running?.abort();
    const running = new AbortController();
    this.running = running;
    try {
      const found = await get(`/api/show/${encodeURIComponent(placedId(this.hit))}?before=${this.before}&after=${this.after}`, running.signal);
      this.draw(found);
    } catch (error) {
      if (error.name !== "AbortError") this.body.replaceChildren(failure(error, () => this.load()));
    }
  }

  draw(found) {
    const at = found.pieces.findIndex((piece) => piece.asked);
    const more = (way, text) =>
      el(
        "button",
        {
          type: "button",
          class: "wide more",
          onclick: async () => {
            this[way] = Math.min(this[way] + 10, AROUND_MAX);
            await this.load();
            announce(`${counted(this.body.querySelectorAll(".piece").length, "piece")} shown`);
          },
        },
        text,
      );
    const isTalk = found.kind !== "memory" || found.pieces.length > 1;
    const nodes = found.pieces.map((piece) => this.piece(piece, found));
    if (isTalk && at >= this.before && this.before < AROUND_MAX) nodes.unshift(more("before", "Earlier"));
    if (isTalk && found.pieces.length - 1 - at >= this.after && this.after < AROUND_MAX) nodes.push(more("after", "Later"));
    if (found.kind === "document") nodes.unshift(el("p", { class: "quiet path" }, [found.path, found.title].filter(Boolean).join(" · ")));
    this.body.replaceChildren(...nodes);
  }

  piece(piece, found) {
    return el(
      "article",
      { class: `piece ${piece.role === "user" ? "user" : "agent"}${piece.asked ? " asked" : ""}` },
      el(
        "header",
        {},
        el("strong", {}, (piece.role && roleName(piece.role)) || found.memory || found.kind),
        piece.agent && piece.role !== "user" ? el("span", {}, piece.agent) : null,
        ago(piece.created_at),
      ),
      body(piece.text, { fold: isFolded(piece.role) && found.kind === "conversation" && !piece.asked ? roleName(piece.role) : "" }),
    );
  }

  async copy() {
    try {
      await navigator.clipboard.writeText(placedId(this.hit));
      toast("The id was copied");
    } catch {
      toast(placedId(this.hit));
    }
  }

  async forget() {
    const { hit } = this;
    const sure = await confirmed(
      "Forget this text?",
      "It goes from every device, for good. Nothing finds it any more, and reading the transcripts again does not bring it back.",
      "Forget it",
      hit.text,
    );
    if (!sure) return;
    try {
      await post("/api/forget", { ids: [hit.id] });
      toast("Forgotten. Your other devices follow.");
      this.close(true);
      this.gone(hit.id);
    } catch (error) {
      toast(`${error.message}. ${error.hint}`, "bad");
    }
  }
}
