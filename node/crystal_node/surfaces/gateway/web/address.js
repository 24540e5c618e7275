// Addresses within the page. None contains what was searched for: browsers keep addresses, and some send them to other devices.
// An address names a state, which this tab keeps while it is open: a reload and the back button find it again.

const STATES = "crystal.states";
const STATES_MAX = 100;

/** The address of a view in this state; that of the view alone where nothing is chosen. */
export function addressOf(view, state = {}) {
  const chosen = Object.fromEntries(Object.entries(state).filter(([, value]) => value !== "" && value !== false && value !== undefined));
  if (!Object.keys(chosen).length) return view === "home" ? "#/" : `#/${view}`;
  const words = JSON.stringify(chosen);
  const states = kept();
  let name = states.find(([, each]) => each === words)?.[0];
  if (!name) {
    name = Array.from(crypto.getRandomValues(new Uint8Array(6)), (each) => each.toString(16).padStart(2, "0")).join("");
    sessionStorage.setItem(STATES, JSON.stringify([...states, [name, words]].slice(-STATES_MAX)));
  }
  return `#/${view}/${name}`;
}

/** The state that an address names; null if this tab does not know it. */
export function stateOf(name) {
  const words = kept().find(([each]) => each === name)?.[1];
  return words === undefined ? null : JSON.parse(words);
}

/** Where the page is: the view, and what stands behind it. */
export function here() {
  const [view, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  return { view: view || "home", rest: rest.map(decoded) };
}

/** Goes there as a step of the history, or instead of the present one. */
export function go(address, { replace = false } = {}) {
  if (address === (location.hash || "#/")) return;
  history[replace ? "replaceState" : "pushState"]({ within: true }, "", `/${address}`);
  dispatchEvent(new Event("hashchange"));
}

/** Goes back if the page was there before, else to another address. */
export function back(otherwise) {
  if (history.state?.within) history.back();
  else go(otherwise);
}

export function forgetStates() {
  sessionStorage.removeItem(STATES);
}

function kept() {
  try {
    const states = JSON.parse(sessionStorage.getItem(STATES) ?? "[]");
    return Array.isArray(states) ? states : [];
  } catch {
    return [];
  }
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return "";
  }
}
