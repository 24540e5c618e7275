// Talking to the gateway of this page, and to nobody else. The page's token lives in this tab's session storage.

const KEY = "crystal.session";
let lockedOut = () => {};

/** What went wrong, with what to do about it. */
export class Failed extends Error {
  constructor(message, hint, status) {
    super(message);
    this.hint = hint;
    this.status = status;
  }
}

/** Who is told when the token is not good any more. */
export function onLockedOut(listener) {
  lockedOut = listener;
}

export function hasToken() {
  return sessionStorage.getItem(KEY) !== null;
}

function keepToken(token) {
  sessionStorage.setItem(KEY, token);
}

/** Ends the session here and at the gateway. */
export async function leave() {
  try {
    await call("DELETE", "/api/session");
  } finally {
    sessionStorage.removeItem(KEY);
    lockedOut();
  }
}

/** Uses a link's code, which is good once. */
export async function openWith(code) {
  const found = await call("POST", "/api/session", { code });
  keepToken(found.token);
}

/** Exchanges the gateway's own token for one of this tab: it is not kept. */
export async function openByToken(token) {
  const found = await call("POST", "/api/session", {}, undefined, token);
  keepToken(found.token);
}

export const get = (path, signal) => call("GET", path, undefined, signal);
export const post = (path, body = {}, signal = undefined) => call("POST", path, body, signal);
export const patch = (path, body) => call("PATCH", path, body);

async function call(method, path, body, signal, given = null) {
  const headers = {};
  const token = given ?? sessionStorage.getItem(KEY);
  if (token !== null) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      credentials: "omit",
      cache: "no-store",
      redirect: "error",
      referrerPolicy: "no-referrer",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failed("The gateway does not answer", "Start it again on this machine: crystal serve", 0);
  }
  let document = null;
  try {
    document = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failed("The gateway's answer broke off", "Try again.", response.status);
  }
  if (response.ok) return document;
  if (response.status === 401 && path !== "/api/session") {
    sessionStorage.removeItem(KEY);
    lockedOut();
  }
  const message = document.error || `The gateway answered ${response.status}`;
  throw new Failed(message.charAt(0).toUpperCase() + message.slice(1), document.hint || "", response.status);
}
