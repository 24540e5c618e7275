// The picture of the flow: devices send sealed texts to the relay, the Core puts them in order, the mirror goes back to all.

import { agoText, counted, svg } from "/dom.js";

const WIDE = { width: 760, device: { x: 8, width: 214, height: 62, gap: 14 }, relay: { x: 308, width: 144 }, core: { x: 538, width: 214 } };
const NARROW = { width: 344, device: { x: 66, width: 272, height: 62, gap: 12 }, relay: { x: 66, width: 272 }, core: { x: 66, width: 272 } };
const SHOWN_MAX = 8;
const STALE_MS = 3 * 86400 * 1000;

/** How a device stands, in a word and a kind. */
export function standingOf(device) {
  if (device.behind > 0) return [`${counted(device.behind, "entry", "entries")} behind`, "warn"];
  if (!device.this && !device.last_seen) return ["not seen yet", "still"];
  if (!device.this && Date.now() - Date.parse(device.last_seen) > STALE_MS) return [`last seen ${agoText(device.last_seen)}`, "warn"];
  if (device.behind === 0 || (device.this && device.role === "core")) return ["up to date", "good"];
  return [device.this ? "here" : "lag not known", "still"];
}

/** What waits of a device: its own outbox, here; what it told, elsewhere. */
export function waitingOf(device, status) {
  return device.this ? status.outbox.pending : device.pending || 0;
}

/** The picture. `narrow`: top to bottom. */
export function flowPicture(status, narrow) {
  const core = status.devices.find((device) => device.role === "core");
  const nodes = status.devices.filter((device) => device !== core);
  const shown = nodes.slice(0, SHOWN_MAX);
  return narrow ? upright(status, core, shown, nodes.length) : across(status, core, shown, nodes.length);
}

function across(status, core, nodes, total) {
  const { device, relay, core: right, width } = WIDE;
  const rows = Math.max(nodes.length, 2);
  const height = rows * device.height + (rows - 1) * device.gap + 50;
  const middle = (height - 34) / 2;
  const top = middle - (nodes.length * device.height + (nodes.length - 1) * device.gap) / 2;
  const picture = frame(width, height, status, nodes.length);
  const out = middle - 9;
  const back = middle + 9;
  nodes.forEach((each, number) => {
    const y = top + number * (device.height + device.gap) + device.height / 2;
    const start = device.x + device.width;
    const bend = (start + relay.x) / 2;
    picture.append(
      line(`M${start} ${y - 8}C${bend} ${y - 8} ${bend} ${out} ${relay.x} ${out}`, "out", waitingOf(each, status) > 0),
      line(`M${relay.x} ${back}C${bend} ${back} ${bend} ${y + 8} ${start} ${y + 8}`, "back", each.behind > 0),
      box(each, status, device.x, y - device.height / 2, device.width, device.height),
    );
  });
  const stored = nodes.some((each) => waitingOf(each, status) > 0);
  picture.append(
    line(`M${relay.x + relay.width} ${out}H${right.x}`, "out", stored),
    line(`M${right.x} ${back}H${relay.x + relay.width}`, "back", nodes.some((each) => each.behind > 0)),
    relayBox(status, relay.x, middle - 38, relay.width, 76),
    core ? box(core, status, right.x, middle - 36, right.width, 72) : missing(right.x, middle - 36, right.width, 72),
  );
  if (!nodes.length) picture.append(words(device.x, middle - 6, "No other device yet.", "quiet"), words(device.x, middle + 14, "crystal pair adds one.", "quiet"));
  legend(picture, 8, height - 12, total - nodes.length);
  return picture;
}

function upright(status, core, nodes, total) {
  const { device, relay, core: first, width } = NARROW;
  const devicesAt = 210;
  const height = devicesAt + Math.max(nodes.length, 1) * (device.height + device.gap) + 44;
  const picture = frame(width, height, status, nodes.length);
  const out = 24;
  const back = 42;
  nodes.forEach((each, number) => {
    const y = devicesAt + number * (device.height + device.gap) + device.height / 2;
    picture.append(
      line(`M${device.x} ${y - 8}H${out + 10}Q${out} ${y - 8} ${out} ${y - 18}V146Q${out} 136 ${out + 10} 136H${relay.x}`, "out", waitingOf(each, status) > 0),
      line(`M${relay.x} 152H${back + 10}Q${back} 152 ${back} 162V${y - 2}Q${back} ${y + 8} ${back + 10} ${y + 8}H${device.x}`, "back", each.behind > 0),
      box(each, status, device.x, y - device.height / 2, device.width, device.height),
    );
  });
  picture.append(
    line(`M${relay.x} 128H${out + 10}Q${out} 128 ${out} 118V46Q${out} 36 ${out + 10} 36H${first.x}`, "out", nodes.some((each) => waitingOf(each, status) > 0)),
    line(`M${first.x} 52H${back + 10}Q${back} 52 ${back} 62V110Q${back} 120 ${back + 10} 120H${relay.x}`, "back", nodes.some((each) => each.behind > 0)),
    relayBox(status, relay.x, 108, relay.width, 62),
    core ? box(core, status, first.x, 10, first.width, 66) : missing(first.x, 10, first.width, 66),
  );
  if (!nodes.length) picture.append(words(device.x, devicesAt + 20, "No other device yet: crystal pair adds one.", "quiet"));
  legend(picture, 8, height - 12, total - nodes.length);
  return picture;
}

function frame(width, height, status, count) {
  return svg("svg", {
    class: "flow",
    viewBox: `0 0 ${width} ${height}`,
    role: "img",
    "aria-label": `How messages flow: ${counted(count, "device")} to the relay, the Core puts them in order, the mirror comes back to all. The table below says the same.`,
  });
}

function line(path, way, moving) {
  return svg("path", { d: path, class: `line ${way}${moving ? " moving" : ""}` });
}

function box(device, status, x, y, width, height) {
  const [word, kind] = standingOf(device);
  const waiting = waitingOf(device, status);
  const name = device.name || device.id.slice(0, 8);
  const role = device.role === "core" ? "Core" : "Node";
  const second = waiting && device.role !== "core" ? `${word} · ${waiting.toLocaleString()} to send` : word;
  return svg(
    "g",
    { class: `box ${device.role}${device.this ? " this" : ""}` },
    svg("rect", { x, y, width, height, rx: 12 }),
    words(x + 16, y + height / 2 - 6, cut(name, 16), "name"),
    words(x + width - 14, y + height / 2 - 6, device.this ? `${role}, this one` : role, "quiet end"),
    svg("circle", { cx: x + 20, cy: y + height / 2 + 13, r: 4, class: `dot ${kind}` }),
    words(x + 31, y + height / 2 + 17, cut(second, 30), "small"),
  );
}

function relayBox(status, x, y, width, height) {
  const ok = status.sync.ok;
  const middle = x + width / 2;
  const failing = !ok;
  return svg(
    "g",
    { class: `box relay${failing ? " failing" : ""}` },
    svg("rect", { x, y, width, height, rx: 12 }),
    words(middle, y + height / 2 - 6, "Relay", "name middle"),
    words(middle, y + height / 2 + 12, !status.relay ? "none" : ok ? "sees sealed boxes" : "cannot be used", "small middle"),
  );
}

function missing(x, y, width, height) {
  return svg("g", { class: "box missing" }, svg("rect", { x, y, width, height, rx: 12 }), words(x + width / 2, y + height / 2 + 4, "The Core is not known here", "small middle"));
}

function legend(picture, x, y, hidden) {
  picture.append(
    svg("path", { d: `M${x} ${y - 4}h26`, class: "line out" }),
    words(x + 33, y, "messages, sealed", "small"),
    svg("path", { d: `M${x + 130} ${y - 4}h26`, class: "line back" }),
    words(x + 163, y, "the mirror, sealed", "small"),
  );
  if (hidden > 0) picture.append(words(x + 300, y, `and ${counted(hidden, "device")} more`, "small"));
}

function words(x, y, text, kind) {
  return svg("text", { x, y, class: kind }, text);
}

function cut(text, length) {
  const characters = Array.from(text);
  return characters.length > length ? `${characters.slice(0, length - 1).join("")}…` : text;
}
