// The background service's jobs: what each does, how it went, and what a person wants of it.

import { get, post } from "/api.js";
import { ago, agoText, el, empty, prose, span, toast } from "/dom.js";
import { Living } from "/living.js";

const LOOK_MS = 4000;

export function jobsView(root) {
  return new Jobs(root);
}

class Jobs extends Living {
  constructor(root) {
    super(root, { title: "Jobs", lead: "What the background service does by itself.", look: LOOK_MS });
  }

  ask() {
    return get("/api/jobs");
  }

  draw({ running, jobs }) {
    const at = document.activeElement?.dataset?.job;
    const nodes = [];
    if (!running) {
      nodes.push(
        el("div", { class: "notice warn", role: "note" }, el("strong", {}, "No agent runs. "), "Its jobs wait until one does: ", el("code", {}, "crystal agent start")),
      );
    }
    if (jobs.length) nodes.push(el("ul", { class: "cards jobs" }, jobs.map((job) => this.card(job, running))));
    else nodes.push(empty("No jobs are known yet", "The background service lists them when it runs."));
    this.body.replaceChildren(...nodes);
    if (at) this.body.querySelector(`[data-job="${CSS.escape(at)}"]`)?.focus();
  }

  card(job, running) {
    const [word, kind] = stateOf(job, running);
    const busy = running && (job.running_since || job.waiting);
    return el(
      "li",
      { class: "card job" },
      el("div", { class: "row" }, el("h2", {}, job.name), el("span", { class: `state ${kind}` }, word), el("span", { class: "grow" }), el("span", { class: "quiet small" }, `every ${span(job.every_seconds)}`)),
      el("p", {}, prose(job.what)),
      job.said && job.outcome !== "nothing" ? el("p", { class: job.failing ? "bad small" : "quiet small" }, prose(job.said)) : null,
      el(
        "div",
        { class: "row" },
        el("span", { class: "quiet small grow" }, job.last_ended ? ["last run ", ago(job.last_ended)] : "has not run yet", job.next && running && !job.paused ? `, next ${agoText(job.next)}` : "", job.put_off ? `, waits ${job.put_off}` : ""),
        el("button", { type: "button", "data-job": `${job.name} pause`, "aria-label": `${job.paused ? "Resume" : "Pause"} ${job.name}`, onclick: () => this.want(job, job.paused ? "resume" : "pause") }, job.paused ? "Resume" : "Pause"),
        el("button", { type: "button", "data-job": `${job.name} run`, "aria-label": `Run ${job.name} now`, disabled: !running || Boolean(busy), onclick: () => this.want(job, "run") }, "Run now"),
      ),
    );
  }

  async want(job, what) {
    try {
      await post(`/api/jobs/${encodeURIComponent(job.name)}/${what}`);
      toast({ run: `${job.name} runs`, pause: `${job.name} is paused`, resume: `${job.name} runs by itself again` }[what]);
    } catch (error) {
      toast(`${error.message}. ${error.hint}`, "bad");
    }
    await this.look();
  }
}

function stateOf(job, running) {
  if (job.running_since && running) return ["running", "busy"];
  if (job.waiting && running) return ["asked for", "busy"];
  if (job.paused) return ["paused", "still"];
  if (job.failing) return [job.failures > 1 ? `failed ${job.failures} times` : "failed", "bad"];
  if (job.outcome === "never") return ["not yet", "still"];
  return [job.outcome === "nothing" ? "nothing to do" : job.outcome, "good"];
}
