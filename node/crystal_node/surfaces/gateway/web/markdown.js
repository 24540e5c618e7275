// Markdown as elements. Texts come from anybody: an agent may have read a page that was written to be shown here.
//
// The library only parses. Elements are made here, one by one, of the kinds below and no others; text becomes text nodes. No markup is
// ever made as a string, so the page's policy can forbid that altogether. HTML in a text stays text. Nothing is fetched: a picture is its
// description and its address. A link is one only to http, https and mail, says where it leads, and opens elsewhere.

import MarkdownIt from "/vendor/markdown-it.js";
import { announce, el, toast } from "/dom.js";

const CHARS_MAX = 200_000;
const TOKENS_MAX = 20_000;
const DEPTH_MAX = 40;
const LANGUAGE_MAX = 24;
const LINKS = new Set(["http:", "https:", "mailto:"]);

const parser = new MarkdownIt("default", { html: false, linkify: false, typographer: false, breaks: true, maxNesting: DEPTH_MAX });

const BLOCKS = {
  paragraph: () => el("p"),
  heading: (token) => el("p", { class: `heading heading-${Number(token.tag.slice(1)) || 6}` }),
  blockquote: () => el("blockquote"),
  bullet_list: () => el("ul"),
  ordered_list: (token) => el("ol", { start: /^\d{1,9}$/.test(token.attrGet("start") ?? "") ? token.attrGet("start") : null }),
  list_item: () => el("li"),
  table: () => el("table"),
  thead: () => el("thead"),
  tbody: () => el("tbody"),
  tr: () => el("tr"),
  th: () => el("th", { scope: "col" }),
  td: () => el("td"),
  strong: () => el("strong"),
  em: () => el("em"),
  s: () => el("s"),
};

/** The text's elements. A text too long or too complex to lay out is shown as it was written. */
export function markdown(text) {
  if (text.length > CHARS_MAX) return [plain(text)];
  let tokens;
  try {
    tokens = parser.parse(text, {});
  } catch {
    return [plain(text)]; // too deep for the parser
  }
  const count = tokens.reduce((sum, token) => sum + 1 + (token.children?.length ?? 0), 0);
  // The parser leaves out what is nested deeper than its limit.
  const isWhole = tokens.every((token) => token.level < DEPTH_MAX - 2);
  if (count > TOKENS_MAX || !isWhole) return [plain(text)];
  const root = el("div");
  draw(tokens, root);
  return [...root.childNodes];
}

/** The text as it was written. */
export function plain(text) {
  return el("div", { class: "plain-text" }, text);
}

function draw(tokens, root) {
  const open = [root];
  for (const token of tokens) {
    const parent = open.at(-1);
    if (token.type === "inline") draw(token.children ?? [], parent);
    else if (token.nesting === 1) {
      const made = token.hidden ? parent : token.type === "link_open" ? link(token) : BLOCKS[token.type.replace(/_open$/, "")]?.(token) ?? el("span");
      if (made !== parent) parent.append(made.localName === "table" ? scrolling(made, "Table") : made);
      open.push(made);
    } else if (token.nesting === -1) {
      const closed = open.length > 1 ? open.pop() : root;
      if (closed.localName === "a") tellHost(closed);
    } else parent.append(...leaf(token));
  }
}

function leaf(token) {
  switch (token.type) {
    case "text":
    case "text_special":
      return [token.content];
    case "softbreak":
    case "hardbreak":
      return [el("br")];
    case "code_inline":
      return [el("code", {}, token.content)];
    case "fence":
      return [code(token.content, token.info)];
    case "code_block":
      return [code(token.content, "")];
    case "hr":
      return [el("hr")];
    case "image":
      return picture(token);
    default:
      return [token.content];
  }
}

function code(text, info) {
  const language = info.trim().split(/\s+/)[0].replace(/[^\w+#.-]/g, "").slice(0, LANGUAGE_MAX);
  const copy = el("button", { type: "button", class: "plain small", onclick: () => copied(text) }, "Copy");
  return el("figure", { class: "code" }, el("figcaption", {}, el("span", { class: "grow" }, language || "text"), copy), scrolling(el("pre", {}, el("code", {}, text.replace(/\n$/, ""))), language ? `Code, ${language}` : "Code"));
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    announce("Copied");
    toast("Copied");
  } catch {
    toast("The browser did not allow copying", "bad");
  }
}

/** Lets what may be wider than the page scroll by itself, by keyboard as well. */
function scrolling(node, label) {
  return el("div", { class: "scroller", tabindex: 0, role: "group", "aria-label": label }, node);
}

function target(address) {
  try {
    const url = new URL(address);
    return LINKS.has(url.protocol) ? url : null;
  } catch {
    return null;
  }
}

function link(token) {
  const url = target(token.attrGet("href") ?? "");
  if (!url) return el("span", { class: "no-link", title: "Only http, https and mail links can be opened" });
  return anchor(url);
}

function anchor(url) {
  return el("a", { href: url.href, title: url.href, target: "_blank", rel: "noopener noreferrer nofollow", referrerpolicy: "no-referrer" });
}

/** Says where a link leads if its words do not. */
function tellHost(node) {
  const { host, pathname, protocol } = new URL(node.href);
  const where = protocol === "mailto:" ? pathname : host;
  const said = node.textContent.trim();
  const isPlain = said === node.href || said === where || said.startsWith(`${protocol}//${host}/`) || said === `${protocol}//${host}`;
  if (!isPlain) node.append(el("span", { class: "host" }, ` (${where})`));
}

function picture(token) {
  const url = target(token.attrGet("src") ?? "");
  const words = `Picture: ${token.content || "without a description"}`;
  if (!url) return [el("span", { class: "picture-note" }, words)];
  const node = anchor(url);
  node.classList.add("picture-note");
  node.append(words);
  tellHost(node);
  return [node];
}
