// Content, small makers of elements, numbers as people read them, and axes. Text enters the page as text nodes only.
const SVG = "http://www.w3.org/2000/svg";
const content = JSON.parse(document.getElementById("volery-content").textContent);
const DASHES = ["", "6 2", "2 1.5", "7 2 1.5 2"];
const COLOURS = 10;
const MINUS = "\u2212", NOTHING = "\u2013";

function make(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (typeof value === "boolean") { if (value) made.setAttribute(key, ""); }
    else if (value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function draw(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function digits(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e7 || size < 0.001) return value.toExponential(size < 0.001 ? 1 : 2);
  const places = size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 3;
  return value.toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places });
}

const UNITS = [[999.5e-6, 1e-6, "\u00b5s"], [999.5e-3, 1e-3, "ms"], [119.5, 1, "s"], [119.5 * 60, 60, "min"],
  [47.95 * 3600, 3600, "h"], [Infinity, 86400, "d"]];

function duration(seconds) {
  if (seconds === null || seconds < 0 || Number.isNaN(seconds)) return NOTHING;
  if (seconds === 0) return "0 s";
  const [, scale, unit] = UNITS.find(([below]) => seconds < below);
  return `${digits(seconds / scale)} ${unit}`;
}

const whole = (count) => Math.round(count).toLocaleString("en-US");
// 0.0 % is nothing, and 100.0 % is all.
function percent(share) {
  if (!Number.isFinite(share)) return NOTHING;
  if (share > 0 && share < 0.0005) return "< 0.1 %";
  return share < 1 && share >= 0.9995 ? "> 99.9 %" : `${(100 * share).toFixed(1)} %`;
}
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const colour = (label) => `var(--c${label % COLOURS})`;
const dash = (label) => DASHES[label % DASHES.length];

// Pairs of (skipped, number), flat, as [place, number].
function* unpacked(pairs) {
  let place = -1;
  for (let at = 0; at < pairs.length; at += 2) {
    place += pairs[at] + 1;
    yield [place, pairs[at + 1]];
  }
}

// First place of a rising array whose value is at least (or, with `above`, more than) this.
function bisect(values, value, above) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < value || (above && values[middle] === value)) low = middle + 1; else high = middle;
  }
  return low;
}

// A server answers where there is one; a file answers from what it holds.
async function ask(path, query) {
  const answer = await fetch(`${path}?${new URLSearchParams({ ...query, edition: content.edition })}`);
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.problem || answer.statusText);
  return found;
}

// Round steps for an axis, about so many.
function steps(low, high, about) {
  const raw = (high - low) / Math.max(1, about);
  if (!(raw > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw * 0.999);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high * (1 + 1e-12) + 1e-12; at++) found.push(at * step);
  return found;
}

// Delays to mark on a logarithmic axis, at most about so many: decades, or 1, 2 and 5 of each where there is room.
function marks(about) {
  const { low_s: low, high_s: high } = content.grid, decades = Math.log10(high / low), found = [];
  const factors = decades * 3 <= about ? [1, 2, 5] : [1], stride = Math.ceil(decades / Math.max(2, about));
  for (let power = Math.floor(Math.log10(low) / stride) * stride; power <= Math.log10(high) + 1e-9; power += stride) {
    for (const factor of factors) {
      const value = factor * 10 ** power;
      if (value >= low * 0.999999 && value <= high * 1.000001) found.push(value);
    }
  }
  return found;
}

// A round duration, as short as it is; above a second in seconds, so that decades look like decades.
const roundDuration = (seconds) => (seconds >= 0.9999 ? `${Math.round(seconds).toLocaleString("en-US")} s` : duration(seconds).replace(/\.0+ /, " "));

// A drawing that fills its frame and is drawn again when that changes; `paint` gets the drawing, its width and height
// in its own units, which grow with the page's letters.
function canvas(frame, name, height, paint) {
  const drawing = draw("svg", { role: "group", "aria-label": name, tabindex: "0", class: "chart" });
  frame.append(drawing);
  let room = 0;
  const again = () => {
    const now = Math.floor(frame.clientWidth);
    if (!now) return;
    room = now;
    const unit = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16 || 1;
    const width = Math.floor(now / unit), tall = height(width);
    drawing.setAttribute("viewBox", `0 0 ${width} ${tall}`);
    drawing.setAttribute("width", width * unit);
    drawing.setAttribute("height", tall * unit);
    drawing.replaceChildren();
    paint(drawing, width, tall);
  };
  new ResizeObserver(() => { if (Math.floor(frame.clientWidth) !== room) again(); }).observe(frame);
  return { drawing, again };
}

function placeOf(event, drawing) {
  const box = drawing.getBoundingClientRect();
  const scale = drawing.viewBox.baseVal.width / (box.width || 1);
  return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
}

// Buttons that choose one of several; `chosen` is told the number.
function choice(title, names, chosen) {
  const group = make("span", { class: "choice", role: "group", "aria-label": title });
  const buttons = names.map((name, at) => make("button", {
    type: "button", "aria-pressed": String(at === 0), onclick: () => {
      buttons.forEach((one, place) => one.setAttribute("aria-pressed", String(place === at)));
      chosen(at);
    },
  }, name));
  group.append(make("span", { class: "soft" }, `${title} `), ...buttons);
  return names.length > 1 ? group : null;
}

function selection(title, names, chosen, at) {
  const select = make("select", { onchange: () => chosen(Number(select.value)) });
  names.forEach(([value, name]) => select.append(make("option", { value, selected: value === at }, name)));
  return make("label", { class: "choice" }, make("span", { class: "soft" }, `${title} `), select);
}

const labelName = (label, setting, names = content.labels) => {
  const name = names[label], ending = ` [${setting}]`;
  return setting && name.endsWith(ending) ? name.slice(0, -ending.length) : name;
};

// One button per label, in its colour, that shows or hides it.
function legend(setting, hidden, changed, names = content.labels, what = "architecture") {
  const list = make("div", { class: "legend", role: "group", "aria-label": `${what}s shown` });
  for (const label of setting.members) {
    const swatch = draw("svg", { width: 26, height: 8, "aria-hidden": "true" });
    swatch.append(draw("line", { x1: 0, x2: 26, y1: 4, y2: 4, stroke: colour(label), "stroke-width": 3, "stroke-dasharray": dash(label) }));
    const button = make("button", {
      type: "button", "aria-pressed": String(!hidden.has(label)), title: names[label], onclick: () => {
        if (!hidden.delete(label)) hidden.add(label);
        button.setAttribute("aria-pressed", String(!hidden.has(label)));
        changed();
      },
    }, swatch, make("bdi", {}, labelName(label, setting.name, names)));
    list.append(button);
  }
  return list;
}

// A table whose rows are arrays of text (or nodes); the first `names` columns are text.
function grid(heads, rows, names) {
  const cell = (kind, value, at) => make(kind, { class: at < names ? (at ? "text" : "text label") : "" }, value);
  const head = make("thead", {}, make("tr", {}, ...heads.map((text, at) => cell("th", text, at))));
  const body = make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((value, at) => cell("td", value, at)))));
  const table = make("table", {}, head, body);
  sortable(table);
  return make("div", { class: rows.length > 12 ? "scroll bounded" : "scroll", tabindex: rows.length > 12 ? "0" : null }, table);
}

// What is played tells the moment, and whoever shows time hears it; a reader's click on time is told the same way.
const clock = {
  heard: [],
  speed: 0, // seconds of the run per second while it plays
  tell(time, by) { for (const one of this.heard) if (one.by !== by) one.hear(time); },
};

const views = {};

function start() {
  for (const mount of document.querySelectorAll("[data-view]")) {
    const view = views[mount.dataset.view];
    if (!view || !view(mount)) continue;
    mount.classList.add("explore");
    for (const still of document.querySelectorAll(`[data-still="${mount.dataset.view}"]`)) still.hidden = true;
  }
  for (const table of document.querySelectorAll(".scroll > table")) sortable(table);
}
