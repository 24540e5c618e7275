// How this device and the others stand: the picture, their lag, the channels, and what needs a person.

import { get } from "/api.js";
import { ago, counted, el, prose, span } from "/dom.js";
import { flowPicture, standingOf, waitingOf } from "/flow.js";
import { Living } from "/living.js";
import { problemsList, problemsOf } from "/problems.js";

const LOOK_MS = 5000;

export function devicesView(root) {
  return new Devices(root);
}

class Devices extends Living {
  constructor(root) {
    super(root, { title: "Devices", lead: "What one device hears, all of them remember.", look: LOOK_MS, body: { class: "stack" } });
    this.narrow = matchMedia("(max-width: 700px)");
    this.narrow.addEventListener("change", () => this.found && this.draw(this.found));
  }

  async ask() {
    const [status, { sources }] = await Promise.all([get("/api/status"), get("/api/sources")]);
    return { status, sources };
  }

  draw(found) {
    this.found = found;
    const { status, sources } = found;
    this.body.replaceChildren(
      ...[
        this.needs(status),
        el("div", { class: "card picture" }, flowPicture(status, this.narrow.matches)),
        this.table(status),
        this.channels(status),
        this.memory(status),
        this.recall(status),
        this.documents(sources),
      ].filter(Boolean),
    );
  }

  needs(status) {
    return problemsList(problemsOf(status)) ?? el("div", { class: "notice good" }, "Nothing needs you.");
  }

  table(status) {
    return el(
      "div",
      { class: "card scroll" },
      el(
        "table",
        {},
        el("caption", {}, "All devices of this vault"),
        el("thead", {}, el("tr", {}, ["Device", "Role", "Standing", "To send", "Last seen"].map((title) => el("th", { scope: "col" }, title)))),
        el(
          "tbody",
          {},
          status.devices.map((device) => {
            const [word, kind] = standingOf(device);
            return el(
              "tr",
              {},
              el("th", { scope: "row" }, device.name || device.id.slice(0, 8), device.this ? el("span", { class: "flag here" }, "this one") : null),
              el("td", { "data-title": "Role" }, device.role === "core" ? "Core" : "Node"),
              el("td", { "data-title": "Standing" }, el("span", { class: `state ${kind}` }, word)),
              el("td", { "data-title": "To send" }, waitingOf(device, status).toLocaleString()),
              el("td", { "data-title": "Last seen" }, device.this ? "now" : ago(device.last_seen)),
            );
          }),
        ),
      ),
    );
  }

  channels({ channels }) {
    const { conversations, mirror, files, commands } = channels;
    const open = commands ? commands.asked + commands.running + commands.waiting : 0;
    return el(
      "ul",
      { class: "cards channels", "aria-label": "Channels of this device" },
      channel("Conversations", "out", conversations.unsent + conversations.stored, conversations.oldest_seconds, `${counted(conversations.unsent, "message")} here, ${conversations.stored.toLocaleString()} at the relay`),
      channel("Mirror", "in", mirror.behind, mirror.oldest_seconds, mirror.ahead ? `${mirror.ahead} has more` : "entries that others have"),
      channel("Files", "out", files.waiting, files.oldest_seconds, "changes on their way"),
      channel("Commands", "both ways", open, commands?.oldest_seconds ?? null, "asked for and not over"),
    );
  }

  memory({ memory }) {
    const numbers = [
      ["messages", memory.texts],
      ["memories", memory.memories],
      ["not shared yet", memory.provisional],
      ["forgotten", memory.forgotten],
    ];
    return el(
      "div",
      { class: "card" },
      el("h2", {}, "Memory of this device"),
      el("dl", { class: "numbers" }, numbers.map(([name, count]) => el("div", {}, el("dt", {}, name), el("dd", {}, count.toLocaleString())))),
      memory.model ? el("p", { class: "quiet small" }, `Vectors: ${memory.model}`) : null,
    );
  }

  /** What recall was worth in the last days. */
  recall({ recall }) {
    if (!recall) return null;
    const share = (value) => `${Math.round(100 * value)}%`;
    const numbers = [
      ["records told", recall.records.toLocaleString()],
      ["tokens", recall.tokens.toLocaleString()],
      recall.used_share === null ? null : ["used by answers", share(recall.used_share)],
      recall.silent_share === null ? null : ["prompts met with silence", share(recall.silent_share)],
    ].filter(Boolean);
    const nothing = !recall.injections && !recall.prompts;
    return el(
      "div",
      { class: "card recall" },
      el("h2", {}, `Recall on this device, in the last ${recall.days} days`),
      nothing
        ? el("p", { class: "quiet" }, "No agent asked, and none was told anything.")
        : el("dl", { class: "numbers" }, numbers.map(([name, count]) => el("div", {}, el("dt", {}, name), el("dd", {}, count)))),
      nothing ? null : el("p", { class: "quiet small" }, prose("What was told, why, and at which prompt: `crystal recall log`")),
    );
  }

  documents(sources) {
    if (!sources.length) return null;
    return el(
      "div",
      { class: "card" },
      el("h2", {}, "Sources of documents"),
      el(
        "ul",
        { class: "sources" },
        sources.map((each) =>
          el(
            "li",
            {},
            el("strong", {}, each.name),
            el("span", { class: "quiet small" }, `${counted(each.documents, "document")}, ${counted(each.pieces, "piece")} · ${each.here ? "of this device" : `of ${each.device}`}`),
            each.problem ? el("span", { class: "state bad" }, each.problem) : null,
            each.waiting ? el("span", { class: "state warn" }, `${counted(each.waiting, "removal")} to confirm`) : null,
            each.last_sync ? el("span", { class: "quiet small" }, "looked at ", ago(each.last_sync)) : null,
          ),
        ),
      ),
    );
  }
}

function channel(name, way, waiting, oldest, what) {
  const known = waiting !== null && waiting !== undefined;
  const text = known ? (waiting ? waiting.toLocaleString() : "idle") : "not known";
  return el(
    "li",
    { class: "card" },
    el("div", { class: "row" }, el("h2", {}, name), el("span", { class: "quiet small" }, way)),
    el("p", { class: `big${waiting ? " warn" : ""}` }, text),
    el("p", { class: "quiet small" }, waiting && oldest ? `${what}, for ${span(oldest)} at most` : waiting ? what : "nothing waits"),
  );
}
