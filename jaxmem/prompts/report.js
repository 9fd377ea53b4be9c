"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const root = document.getElementById("strips");
const tip = document.getElementById("tip");
const bar = document.getElementById("picked");
const whole = new Intl.NumberFormat("en-US");
const PARTS = data.parts, KINDS = data.kinds;
// A call: number, session, source, parts, how, cause, reference, finding, runs of (kind, tokens).
const [NUMBER, SESSION, SOURCE, PART, HOW, CAUSE, REFERENCE, FINDING, RUNS] = Array(9).keys();
const sum = (list) => list.reduce((a, b) => a + b, 0);
const color = (name) => `var(--${name})`;
const percent = (part, all) => `${((100 * part) / Math.max(all, 1)).toFixed(1)} %`;

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function gradient(pieces) {
  const all = Math.max(sum(pieces.map((piece) => piece[1])), 1);
  let done = 0;
  const stops = pieces.filter((piece) => piece[1] > 0).map(([name, tokens]) => {
    const from = done;
    done += tokens;
    return `${color(name)} ${((100 * from) / all).toFixed(3)}% ${((100 * done) / all).toFixed(3)}%`;
  });
  if (!stops.length) return "none";
  return `linear-gradient(90deg,${stops.join(",")})`;
}

const partPieces = (parts) => PARTS.map((name, i) => [name, parts[i]]);
function kindPieces(runs) {
  const pieces = [];
  for (let i = 0; i < runs.length; i += 2) pieces.push([KINDS[runs[i]], runs[i + 1]]);
  return pieces;
}
const BROKEN = PARTS.indexOf("broken"), EXPIRED = PARTS.indexOf("expired");
const held = (parts) => parts[0] + parts[1] + parts[2]; // the common prefix
const breaks = (call) => call[CAUSE] >= 0 && (call[PART][BROKEN] > 0 || call[FINDING] >= 0);

function causeOf(call) {
  const parts = call[PART];
  let text = data.how[call[HOW]];
  if (call[CAUSE] >= 0) {
    text = `${data.names[call[CAUSE]]} ${text}`;
    if (parts[BROKEN] > 0) text += `, ${whole.format(parts[BROKEN])} tokens computed again`;
    else text += ", nothing behind it was lost";
  } else if (call[REFERENCE] > 0) text += ` ${whole.format(call[REFERENCE])}`;
  if (parts[EXPIRED] > 0) {
    text += `; ${whole.format(parts[EXPIRED])} tokens expired, unused for the time to live`;
  }
  return text;
}
const titleOf = (call) =>
  [`call ${whole.format(call[NUMBER])}`, `session ${whole.format(call[SESSION])}`, call[SOURCE]]
    .filter(Boolean).join(" · ");

// The strips: built when a session is opened, in chunks that are laid out when they come into view.
const longest = Math.max(1, ...data.calls.map((call) => sum(call[PART])));
const count = data.calls.length;
const height = count <= 150 ? 16 : count <= 700 ? 11 : 7;
root.style.setProperty("--h", `${height}px`);
root.style.setProperty("--gap", `${height > 11 ? 5 : height > 7 ? 4 : 2}px`);
const stripOf = new Map();
const callOf = new Map();
let picked = -1;

function strip(call, place) {
  const made = element("div", "strip");
  const parts = call[PART], all = sum(parts), width = (100 * all) / longest;
  made.tabIndex = -1;
  made.setAttribute("role", "img");
  made.setAttribute(
    "aria-label", `${titleOf(call)}: ${whole.format(all)} tokens, ` +
      `${percent(parts[0], all)} reused; ${causeOf(call)}`);
  if (height > 11 || place % 10 === 0) made.dataset.n = call[NUMBER];
  made.style.backgroundImage = `${gradient(partPieces(parts))},${gradient(kindPieces(call[RUNS]))}`;
  const size = `max(${width.toFixed(3)}%,2px)`;
  const lane = height > 11 ? 4 : height > 7 ? 3 : 2;
  made.style.backgroundSize = `${size} calc(100% - ${lane + (height > 7 ? 1 : 0)}px),${size} ${lane}px`;
  made.style.backgroundPosition = "0 0,0 100%";
  if (!all) made.classList.add("empty");
  if (breaks(call)) {
    made.classList.add("break");
    made.style.setProperty("--at", `${((100 * held(parts)) / longest).toFixed(3)}%`);
  }
  if (picked >= 0 && call[FINDING] === picked) made.classList.add("on");
  stripOf.set(call, made);
  callOf.set(made, call);
  return made;
}

function fill(details, calls) {
  if (details.dataset.filled) return;
  details.dataset.filled = "yes";
  for (let from = 0; from < calls.length; from += 100) {
    const chunk = element("div", "chunk");
    const some = calls.slice(from, from + 100);
    chunk.style.containIntrinsicSize = `auto ${some.length * (height + 2)}px`;
    chunk.append(...some.map((call, i) => strip(call, from + i)));
    details.append(chunk);
  }
}

const sessions = [];
let opened = 0, next = 0;
for (const [number, calls, prompt, reused, lost, shown] of data.sessions) {
  const own = data.calls.slice(next, next + shown);
  next += shown;
  const details = element("details"), summary = element("summary");
  summary.append(element("b", "", `session ${whole.format(number)}`));
  const mix = element("span", "mix");
  mix.style.backgroundImage = gradient(
    PARTS.map((name, i) => [name, sum(own.map((call) => call[PART][i]))]));
  summary.append(mix);
  const some = shown < calls ? `first ${whole.format(shown)} of ` : "";
  summary.append(
    `${some}${whole.format(calls)} ${calls === 1 ? "call" : "calls"}, ` +
      `${whole.format(prompt)} tokens, ${percent(reused, prompt)} reused, ` +
      `${whole.format(lost)} computed again`);
  const hits = element("span", "hits");
  summary.append(hits);
  details.append(summary);
  const session = { details, calls: own, hits };
  details.addEventListener("toggle", () => details.open && fill(details, own));
  if (opened === 0 || opened + shown <= 400 || count <= 700) {
    details.open = true;
    fill(details, own);
    opened += shown;
  }
  sessions.push(session);
  root.append(details);
}

// A scale in tokens, the same for all strips.
const axis = document.getElementById("axis");
function scale() {
  axis.replaceChildren();
  const ticks = axis.clientWidth < 500 ? 3 : 8;
  const power = 10 ** Math.floor(Math.log10(longest / ticks));
  const step = Math.max(1, [1, 2, 5, 10].map((x) => x * power).find((x) => longest / x <= ticks) || 1);
  for (let at = 0; at <= longest; at += step) {
    if (at > 0 && at / longest > (axis.clientWidth < 500 ? 0.85 : 0.95)) break;
    const tick = element("span", "", at ? whole.format(at) : "0 tokens");
    tick.style.left = `${(100 * at) / longest}%`;
    axis.append(tick);
  }
}
if (count) {
  scale();
  addEventListener("resize", scale);
}

// What a strip says, under the pointer or at the focus.
function show(made, x, y) {
  const call = callOf.get(made), parts = call[PART], all = sum(parts);
  tip.replaceChildren(
    element("div", "muted", titleOf(call)), element("p", "cause", causeOf(call)));
  const table = element("table");
  PARTS.forEach((name, i) => {
    if (!parts[i]) return;
    const row = table.insertRow(), cell = row.insertCell();
    cell.append(element("span", `key k-${name}`), data.said[i]);
    const number = row.insertCell(), share = row.insertCell();
    number.className = share.className = "n";
    number.textContent = whole.format(parts[i]);
    share.textContent = percent(parts[i], all);
  });
  const last = table.insertRow();
  last.insertCell().textContent = "prompt";
  last.insertCell().textContent = whole.format(all);
  last.cells[1].className = "n";
  tip.append(table);
  const order = kindPieces(call[RUNS]);
  const front = order.slice(0, 8).map(([name, tokens]) => `${name} ${whole.format(tokens)}`);
  if (order.length > 8) front.push("…");
  tip.append(element("div", "muted", `front to back: ${front.join(", ")}`));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const below = y + 18 + box.height < innerHeight;
  tip.style.left = `${Math.max(8, Math.min(x + 12, innerWidth - box.width - 8))}px`;
  tip.style.top = `${below ? y + 18 : Math.max(8, y - box.height - 14)}px`;
}
const stripAt = (event) => event.target.closest && event.target.closest(".strip");
root.addEventListener("pointermove", (event) => {
  const made = stripAt(event);
  if (made) show(made, event.clientX, event.clientY);
  else tip.hidden = true;
});
root.addEventListener("pointerleave", () => { tip.hidden = true; });
root.addEventListener("focusin", (event) => {
  const made = stripAt(event);
  if (!made) return;
  const box = made.getBoundingClientRect();
  show(made, box.left + 20, box.bottom - 8);
  rove(made);
});
root.addEventListener("focusout", () => { tip.hidden = true; });
addEventListener("scroll", () => {
  const made = document.activeElement;
  if (tip.hidden || !callOf.has(made)) { tip.hidden = true; return; }
  const box = made.getBoundingClientRect();
  show(made, box.left + 20, box.bottom - 8);
}, { passive: true });

// One stop of the tab key; arrows go on from there, n and p to the next break.
let stop = null;
function rove(made) {
  if (stop) stop.tabIndex = -1;
  stop = made;
  stop.tabIndex = 0;
}
if (stripOf.size) rove(stripOf.values().next().value);
function go(call) {
  const session = sessions.find((one) => one.calls.includes(call));
  session.details.open = true;
  fill(session.details, session.calls);
  const made = stripOf.get(call);
  made.scrollIntoView({ block: "center" });
  made.focus({ preventScroll: true });
}
root.addEventListener("keydown", (event) => {
  const made = stripAt(event);
  if (!made || event.ctrlKey || event.metaKey || event.altKey) return;
  const visible = sessions.filter((one) => one.details.open).flatMap((one) => one.calls);
  const here = visible.indexOf(callOf.get(made));
  const ways = {
    ArrowDown: () => visible[here + 1],
    ArrowUp: () => visible[here - 1],
    Home: () => visible[0],
    End: () => visible[visible.length - 1],
    n: () => visible.slice(here + 1).find(breaks),
    p: () => visible.slice(0, here).reverse().find(breaks),
  };
  if (!(event.key in ways)) return;
  event.preventDefault();
  const call = ways[event.key]();
  if (call) go(call);
});

// A row of the table marks the strips that it broke.
const rows = [...document.querySelectorAll(".finding")];
const said = document.getElementById("picked-said");
let turn = -1;
const marked = () => sessions.flatMap((one) => one.calls).filter((call) => call[FINDING] === picked);
function pick(finding) {
  picked = finding === picked ? -1 : finding;
  turn = -1;
  rows.forEach((row, i) => {
    row.classList.toggle("on", i === picked);
    row.querySelector(".mark").setAttribute("aria-pressed", i === picked);
  });
  root.classList.toggle("picking", picked >= 0);
  for (const [call, made] of stripOf) made.classList.toggle("on", picked >= 0 && call[FINDING] === picked);
  for (const one of sessions) {
    const hits = picked < 0 ? 0 : one.calls.filter((call) => call[FINDING] === picked).length;
    one.hits.textContent = hits ? `${whole.format(hits)} marked` : "";
  }
  bar.hidden = picked < 0;
  if (picked >= 0) {
    const all = Number(rows[picked].dataset.calls), calls = marked(), here = calls.length;
    for (const way of ["back", "next"]) document.getElementById(`picked-${way}`).disabled = !here;
    const worst = Number(rows[picked].dataset.worst);
    document.getElementById("picked-worst").disabled = !calls.some((call) => call[NUMBER] === worst);
    said.textContent = `${rows[picked].dataset.name}: ` +
      (here < all ? `${whole.format(here)} of ${whole.format(all)}` : whole.format(all)) +
      ` ${all === 1 ? "call" : "calls"} marked below`;
  }
}
function turnBy(step) {
  const calls = marked();
  if (!calls.length) return;
  turn = turn < 0 ? (step > 0 ? 0 : calls.length - 1) : (turn + step + calls.length) % calls.length;
  go(calls[turn]);
}
document.getElementById("picked-next").addEventListener("click", () => turnBy(1));
document.getElementById("picked-back").addEventListener("click", () => turnBy(-1));
document.getElementById("picked-worst").addEventListener("click", () => {
  const worst = Number(rows[picked].dataset.worst);
  const call = marked().find((one) => one[NUMBER] === worst);
  if (call) { turn = marked().indexOf(call); go(call); }
});
document.getElementById("picked-clear").addEventListener("click", () => pick(picked));
addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  tip.hidden = true;
  if (picked >= 0) pick(picked);
});
rows.forEach((row, i) => {
  const more = row.nextElementSibling, button = row.querySelector(".open");
  row.addEventListener("click", (event) => {
    if (!event.target.closest(".open")) pick(i);
  });
  if (!button) return;
  const toggle = (closed) => {
    more.classList.toggle("closed", closed);
    button.setAttribute("aria-expanded", !closed);
    button.textContent = closed ? "more" : "less";
  };
  toggle(true);
  button.addEventListener("click", () => toggle(!more.classList.contains("closed")));
});

document.getElementById("theme").addEventListener("click", () => {
  const page = document.documentElement;
  const dark = page.dataset.theme
    ? page.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  page.dataset.theme = dark ? "light" : "dark";
});
