// What needs a person's attention, the worst first.

import { el, prose } from "/dom.js";

/** Lines of kind, text and remedy. `jobs`: those of the background service, if they were asked for. */
export function problemsOf(status, jobs = []) {
  const lines = [
    ...status.stuck.map((each) => ["bad", each.text, each.remedy]),
    ...(status.sync.ok || status.stuck.length ? [] : [["bad", status.sync.failure, ""]]),
    ...jobs.filter((job) => job.failing).map((job) => ["bad", `The job ${job.name} fails: ${job.said || "no reason is given"}`, ""]),
    ...status.concerns.map((each) => ["warn", each.text, ""]),
    ...status.notices.map((each) => ["warn", each.text, ""]),
  ];
  if (status.private.on) lines.unshift(["warn", "Private mode is on: nothing is recorded here.", "crystal private off"]);
  return lines.filter(([, text]) => text);
}

/** The list of them; null if nothing needs anybody. */
export function problemsList(lines) {
  if (!lines.length) return null;
  return el(
    "ul",
    { class: "notices", "aria-label": "What needs you" },
    lines.map(([kind, text, remedy]) => el("li", { class: `notice ${kind}` }, prose(text), remedy ? el("small", {}, prose(remedy)) : null)),
  );
}
