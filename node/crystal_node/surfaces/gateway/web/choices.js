// Lists to filter by: each value with its count. Pressing one filters by it; pressing it again removes the filter.

import { el } from "/dom.js";

const SHOWN = 7;

/** A list of `values` (`{ value, name, count }`); `choose` is told the value, "" for all. Nothing if there is no choice. */
export function choices(title, values, chosen, choose, { least = 2, more = null } = {}) {
  const known = chosen && !values.some((each) => each.value === chosen) ? [{ value: chosen, name: chosen, count: 0 }, ...values] : values;
  if (known.length < least && !chosen) return null;
  const list = el("ul", { class: "choices" });
  const shown = (all) => {
    const some = all ? known : known.filter((each, number) => number < SHOWN || each.value === chosen);
    list.replaceChildren(...some.map((each) => el("li", {}, choiceOf(each, chosen, choose))));
    if (some.length < known.length) {
      list.append(el("li", {}, el("button", { type: "button", class: "plain small", onclick: () => shown(true) }, `${known.length - some.length} more`)));
    }
  };
  shown(false);
  return el("fieldset", { class: "choice-list" }, el("legend", {}, title), list, more);
}

function choiceOf({ value, name, count }, chosen, choose) {
  const isChosen = value === chosen;
  return el(
    "button",
    { type: "button", class: "choice", title: name, "aria-pressed": String(isChosen), "data-value": value, onclick: () => choose(isChosen ? "" : value) },
    el("span", { class: "grow" }, shortName(name)),
    count === undefined ? null : el("span", { class: "count" }, count.toLocaleString()),
  );
}

/** A project by its last name: "host/owner/crystal" is "crystal". */
export function shortName(name) {
  return name.split(/[\\/]/).filter(Boolean).at(-1) ?? name;
}

/** Values of an activity document, as `choices` takes them. */
export const counted = (values) => values.map((each) => ({ value: each.value, name: each.name, count: each.conversations }));

/** The filters that are set, each with a way to remove it. */
export function chosenChips(chosen, take) {
  return chosen
    .filter(([, , value]) => value)
    .map(([name, label, value]) =>
      el("button", { type: "button", class: "chip on", "data-filter": name, title: value, "aria-label": `${label}: ${value}. Remove this filter`, onclick: () => take(name) }, `${label}: ${shortName(value)}`, el("span", { "aria-hidden": "true" }, " ×")),
    );
}
