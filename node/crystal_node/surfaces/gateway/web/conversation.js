// A conversation, from its first message on: Markdown laid out, thinking and what subagents and tools did folded.

import { addressOf, back } from "/address.js";
import { get, post } from "/api.js";
import { shortName } from "/choices.js";
import { ago, announce, confirmed, counted, el, exact, failure, skeleton, toast } from "/dom.js";
import { markdown, plain } from "/markdown.js";

const PAGE = 60;
const PAGES_TO_FIND_MAX = 200;
const ID_DIGITS = 12;
const RESUMED = new Set(["claude-code", "codex", "gemini-cli", "openclaw", "qwen-code"]);
const NAMES = { user: "You", assistant: "Agent", thinking: "Thinking", action: "Tool call", "subagent-action": "Tool call of a subagent" };

/** What a role is called. */
export function roleName(role, agent = "") {
  if (role === "assistant" && agent) return agent;
  return NAMES[role] ?? role.replaceAll("-", " ").replace(/^./, (first) => first.toUpperCase());
}

/** Whether what this role said is shown only when it is asked for. */
export const isFolded = (role) => role !== "user" && role !== "assistant" && role !== "";

/** The text of a message, laid out; folded where `fold` says what it is. */
export function body(text, { raw = false, fold = "" } = {}) {
  const place = el("div", { class: `text${raw ? "" : " laid-out"}` });
  const fill = () => place.childNodes.length || place.append(...(raw ? [plain(text)] : markdown(text)));
  if (!fold) {
    fill();
    return place;
  }
  const words = text.split(/\s+/).filter(Boolean).length;
  const box = el("details", { class: "folded" }, el("summary", {}, `${fold} · ${counted(words, "word")}`), place);
  box.addEventListener("toggle", () => box.open && fill());
  return box;
}

/** From when to when; the day once if it is the same. */
function span(began, ended) {
  if (!began || began === ended) return exact(ended);
  const isOneDay = new Date(began).toDateString() === new Date(ended).toDateString();
  return `${exact(began)} to ${isOneDay ? new Date(ended).toLocaleTimeString(undefined, { timeStyle: "medium" }) : exact(ended)}`;
}

/** A button that shows and copies the command with which the session goes on, on any machine. */
function resumable(conversation) {
  if (!RESUMED.has(conversation.tool)) return null;
  const command = `crystal resume ${conversation.id.slice(0, ID_DIGITS)}`;
  const shown = el("code", { hidden: true }, command);
  const show = async () => {
    shown.hidden = false;
    try {
      await navigator.clipboard.writeText(command);
      toast("The command was copied: run it on the machine that you are at");
    } catch {
      announce(`Run ${command}`); // it stands beside the button
    }
  };
  return [shown, el("button", { type: "button", onclick: show }, "Resume…")];
}

export function conversationView(root) {
  return new Conversation(root);
}

class Conversation {
  constructor(root) {
    this.id = "";
    this.raw = false;
    this.running = null;
    this.head = el("header", { class: "conversation-head" });
    this.list = el("div", { class: "messages" });
    this.rest = el("button", { type: "button", class: "wide", hidden: true, onclick: () => this.more() });
    this.place = el("div", { class: "whole-conversation" }, this.head, this.list, this.rest);
    root.append(this.place);
    new IntersectionObserver((seen) => seen.some((each) => each.isIntersecting) && this.more(), { rootMargin: "1200px" }).observe(this.rest);
  }

  show([id = "", message = ""]) {
    if (id === this.id && this.messages) {
      if (message) this.reveal(message);
      return;
    }
    this.id = id;
    this.load(message);
  }

  async load(message = "") {
    this.running?.abort();
    this.running = new AbortController();
    this.messages = null;
    this.head.replaceChildren();
    this.rest.hidden = true;
    this.list.replaceChildren(skeleton(4));
    try {
      const found = await this.fetch(0);
      this.found = found;
      this.messages = [];
      this.list.replaceChildren();
      this.header(found.conversation, found.total);
      this.add(found);
      document.title = `${found.conversation.title || "Conversation"} · Crystal`;
      announce(`${counted(found.total, "message")}`);
      if (message) await this.reveal(message);
    } catch (error) {
      if (error.name === "AbortError") return;
      this.head.replaceChildren(el("h1", {}, "Conversation"));
      this.list.replaceChildren(failure(error, () => this.load(message)));
    }
  }

  fetch(offset) {
    return get(`/api/conversations/${encodeURIComponent(this.id)}?limit=${PAGE}&offset=${offset}`, this.running.signal);
  }

  add(found) {
    this.messages.push(...found.messages);
    this.list.append(...found.messages.map((message) => this.message(message)));
    this.total = found.total;
    const left = found.messages.length ? found.total - this.messages.length : 0;
    this.rest.hidden = left <= 0;
    this.rest.textContent = `${counted(Math.max(left, 0), "later message")}`;
  }

  async more() {
    if (this.rest.hidden || this.rest.disabled || !this.messages) return;
    this.rest.disabled = true;
    try {
      this.add(await this.fetch(this.messages.length));
    } catch (error) {
      if (error.name !== "AbortError") toast(`${error.message}. ${error.hint}`, "bad");
    } finally {
      this.rest.disabled = false;
    }
  }

  /** Shows one message, wherever in the conversation it is. */
  async reveal(id) {
    const find = () => this.list.querySelector(`[data-id="${CSS.escape(id)}"]`);
    for (let page = 0; !find() && !this.rest.hidden && page < PAGES_TO_FIND_MAX; page += 1) await this.more();
    const found = find();
    if (!found) return;
    this.list.querySelector(".asked")?.classList.remove("asked");
    found.classList.add("asked");
    const fold = found.querySelector("details");
    if (fold) fold.open = true;
    found.scrollIntoView({ block: "start" });
  }

  header(conversation, total) {
    const only = (name, value, text) => (value ? el("a", { class: "chip", href: addressOf("home", { [name]: value }), title: `All of ${value}` }, text) : null);
    const { began_at: began, ended_at: ended } = conversation;
    const raw = el("button", { type: "button", "aria-pressed": String(this.raw), onclick: () => this.turn(raw) }, "As written");
    this.head.replaceChildren(
      el("div", { class: "row slim" }, el("button", { type: "button", class: "plain", onclick: () => back("#/") }, "‹ Back"), el("span", { class: "grow" }), resumable(conversation), raw),
      el("h1", {}, conversation.title || "A conversation without a question"),
      el(
        "div",
        { class: "chips" },
        only("project", conversation.project, shortName(conversation.project)),
        only("tool", conversation.tool, conversation.tool),
        only("device", conversation.device, conversation.device_name),
        only("agent", conversation.agent, conversation.agent),
      ),
      el("p", { class: "quiet small" }, ended ? el("time", { datetime: ended, title: exact(ended) }, span(began, ended)) : "undated", ` · ${counted(total, "message")}`),
    );
    this.agent = conversation.agent;
  }

  turn(button) {
    this.raw = !this.raw;
    button.setAttribute("aria-pressed", String(this.raw));
    this.list.replaceChildren(...this.messages.map((message) => this.message(message)));
  }

  message(message) {
    const name = roleName(message.role, this.agent);
    const kind = message.role === "user" ? "user" : isFolded(message.role) ? "aside" : "agent";
    return el(
      "article",
      { class: `message ${kind}`, "data-id": message.id, "aria-label": name },
      kind === "aside" ? null : el(
        "header",
        {},
        el("strong", {}, name),
        ago(message.created_at),
        message.provisional ? el("span", { class: "flag" }, "not shared yet") : null,
        el("span", { class: "grow" }),
        this.acts(message),
      ),
      body(message.text, { raw: this.raw, fold: kind === "aside" ? name : "" }),
    );
  }

  acts(message) {
    return el(
      "span",
      { class: "acts" },
      el("button", { type: "button", class: "plain small", onclick: () => this.copy(message) }, "Copy"),
      el("button", { type: "button", class: "plain small", onclick: () => this.forget(message) }, "Forget…"),
    );
  }

  async copy(message) {
    try {
      await navigator.clipboard.writeText(message.text);
      toast("The message was copied");
    } catch {
      toast("The browser did not allow copying", "bad");
    }
  }

  async forget(message) {
    const sure = await confirmed(
      "Forget this message?",
      "It goes from every device, for good. Nothing finds it any more, and reading the transcripts again does not bring it back.",
      "Forget it",
      message.text,
    );
    if (!sure) return;
    try {
      await post("/api/forget", { ids: message.ids });
      toast("Forgotten. Your other devices follow.");
      await this.load();
    } catch (error) {
      toast(`${error.message}. ${error.hint}`, "bad");
    }
  }

  key(event, writing) {
    if (writing) return;
    if (event.key === "Escape") {
      const fold = event.target.closest?.("details.folded[open]");
      if (fold) {
        fold.open = false;
        fold.querySelector("summary").focus();
      } else back("#/");
      return;
    }
    const by = { j: 1, k: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const all = [...this.list.children];
    const edge = document.querySelector(".bar").getBoundingClientRect().bottom + 24;
    const next = by > 0 ? all.find((each) => each.getBoundingClientRect().top > edge + 4) : all.findLast((each) => each.getBoundingClientRect().top < edge - 24);
    next?.scrollIntoView({ block: "start" });
  }
}
