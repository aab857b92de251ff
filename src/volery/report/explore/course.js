// Utilisation, waiting tasks, refused placements and unfinished jobs over time: panels that share their stretch of time.
const PANELS = [
  { key: "permille", low: "low", high: "high", name: "busy slots / slots", scale: 1e-3, text: percent, tick: (value) => `${+(100 * value).toFixed(6)} %` },
  { key: "waiting", name: "tasks that wait", scale: 1, text: digits, tick: (value) => value.toLocaleString("en-US") },
  { key: "refused", name: "placements refused per second", scale: 1, text: digits, tick: (value) => value.toLocaleString("en-US") },
  { key: "unfinished", name: "unfinished jobs", scale: 1, text: digits, tick: (value) => value.toLocaleString("en-US") },
];

views.course = (mount) => overTime(mount, { by: "course", name: "Quantities over time", what: "architecture", names: content.labels, settings: content.settings, curves: content.courses, panels: PANELS });

// Curves by member of a setting; those of `low` and `high` bound a band where few are shown, `largest` adds a column.
function overTime(mount, { by, name, what, names, settings: every, curves, panels: known }) {
  const settings = every.filter((setting) => setting.members.some((label) => curves[label]));
  if (!settings.length) return false;
  const margin = { left: 58, right: 12, top: 20, bottom: 6 };
  const state = { setting: settings[0], hidden: new Set(), cursor: null, span: null };
  const frame = make("div"), table = make("div"), keys = make("div"), drag = draw("g");
  const said = make("p", { class: "note", role: "status", "aria-live": "polite" });
  const shown = () => state.setting.members.filter((label) => curves[label] && !state.hidden.has(label));
  const panels = () => known.filter((panel) => state.setting.members.some((label) => curves[label] && curves[label][panel.key].length));
  const ends = () => {
    const all = state.setting.members.map((label) => curves[label]).filter(Boolean);
    return [Math.min(...all.map((one) => one.begin_s)), Math.max(...all.map((one) => one.end_s))];
  };
  const span = () => state.span || ends();
  let edges = [0, 1], tall = 1;
  const x = (time) => edges[0] + (edges[1] - edges[0]) * ((time - span()[0]) / (span()[1] - span()[0]));
  const timeAt = (at) => clamp(span()[0] + (span()[1] - span()[0]) * ((at - edges[0]) / (edges[1] - edges[0])), ...span());
  const pointAt = (one, time) => Math.floor((time - one.begin_s) / (one.end_s - one.begin_s) * one[known[0].key].length);

  // What is drawn of a curve: the least and the most of the points that share a column of pixels.
  function pathOf(one, values, scale, y, width) {
    const count = values.length, step = (one.end_s - one.begin_s) / count;
    const first = clamp(Math.floor((span()[0] - one.begin_s) / step), 0, count), last = clamp(Math.ceil((span()[1] - one.begin_s) / step), 0, count);
    const stride = Math.max(1, Math.floor((last - first) / Math.max(50, width)));
    let path = "";
    for (let at = first; at < last; at += stride) {
      const part = values.slice(at, at + stride), left = x(Math.max(one.begin_s + at * step, span()[0])).toFixed(1);
      const right = x(Math.min(one.begin_s + (at + stride) * step, span()[1])).toFixed(1);
      path += `${path ? "H" : "M"}${left}${path ? "V" : " "}${y(part[0] * scale).toFixed(1)}`;
      if (stride > 1) path += `V${y(Math.max(...part) * scale).toFixed(1)}V${y(Math.min(...part) * scale).toFixed(1)}`;
      path += `H${right}`;
    }
    return path;
  }

  const hasBand = (one, panel) => panel.high && one[panel.high].length > 0 && shown().length <= 4;
  function bandOf(one, panel, y) {
    const low = one[panel.low], high = one[panel.high], count = low.length, step = (one.end_s - one.begin_s) / count, upper = [], lower = [];
    for (let at = 0; at < count; at++) {
      const from = Math.max(one.begin_s + at * step, span()[0]), to = Math.min(one.begin_s + (at + 1) * step, span()[1]);
      if (from >= to) continue;
      const [left, right, over, under] = [x(from), x(to), y(high[at] * panel.scale), y(low[at] * panel.scale)].map((place) => place.toFixed(1));
      upper.push(`${left} ${over}L${right} ${over}`);
      lower.unshift(`${right} ${under}L${left} ${under}`);
    }
    return upper.length ? `M${[...upper, ...lower].join("L")}Z` : "";
  }

  const tallOf = (width) => clamp(width * 0.2, 110, 240);
  const chart = canvas(frame, name, (width) => panels().length * tallOf(width) + 34, (drawing, width) => {
    edges = [margin.left, width - margin.right];
    const each = tallOf(width), axis = draw("g", { class: "axis" });
    tall = panels().length * each;
    const [divisor, unit] = ends()[1] < 600 ? [1, "s"] : ends()[1] < 36000 ? [60, "min"] : [3600, "h"];
    for (const at of steps(span()[0] / divisor, span()[1] / divisor, width / 110)) {
      axis.append(draw("line", { x1: x(at * divisor), x2: x(at * divisor), y1: margin.top, y2: tall }));
      axis.append(draw("text", { x: x(at * divisor), y: tall + 15, "text-anchor": "middle" }, `${+at.toPrecision(8)}`));
    }
    axis.append(draw("text", { x: edges[1], y: tall + 30, "text-anchor": "end" }, `time since the run began (${unit})`));
    drawing.append(axis);
    panels().forEach((panel, place) => {
      const top = place * each + margin.top, bottom = (place + 1) * each - margin.bottom;
      const most = Math.max(1e-9, ...shown().map((label) => {
        const one = curves[label], values = one[hasBand(one, panel) ? panel.high : panel.key], step = (one.end_s - one.begin_s) / Math.max(1, values.length);
        const from = clamp(Math.floor((span()[0] - one.begin_s) / step), 0, values.length), to = clamp(Math.ceil((span()[1] - one.begin_s) / step), 0, values.length);
        return values.slice(from, to).reduce((high, value) => Math.max(high, value), 0) * panel.scale;
      }));
      const y = (value) => bottom - (bottom - top) * (value / most);
      for (const at of steps(0, most, each / 50)) {
        axis.append(draw("line", { x1: edges[0], x2: edges[1], y1: y(at), y2: y(at) }));
        axis.append(draw("text", { x: edges[0] - 6, y: y(at) + 4, "text-anchor": "end" }, panel.tick(+at.toPrecision(6))));
      }
      axis.append(draw("text", { x: edges[0], y: top - 7, class: "title" }, panel.name));
      for (const label of shown()) {
        const one = curves[label];
        if (!one[panel.key].length) continue;
        if (hasBand(one, panel)) drawing.append(draw("path", { d: bandOf(one, panel, y), fill: colour(label), opacity: 0.16 }));
        drawing.append(draw("path", { d: pathOf(one, one[panel.key], panel.scale, y, width), fill: "none", stroke: colour(label), "stroke-width": 1.6, "stroke-dasharray": dash(label), "data-label": label }));
      }
    });
    drawing.append(drag);
    mark();
  });

  let from = null;
  function mark() {
    drag.replaceChildren();
    if (from !== null && state.cursor !== null) {
      const [left, right] = [x(from), x(state.cursor)].sort((a, b) => a - b);
      drag.append(draw("rect", { class: "brush", x: left, y: 0, width: Math.max(1, right - left), height: tall }));
    }
    if (state.cursor !== null) drag.append(draw("line", { class: "cursor", x1: x(state.cursor), x2: x(state.cursor), y1: 0, y2: tall }));
  }

  const columns = () => panels().flatMap((panel) => (panel.largest ? [panel, { ...panel, key: panel.largest, name: `${panel.name}, most`, most: true }] : [panel]));

  // Mean, or largest value, of a curve over the stretch that is shown: outside its own time a curve is zero.
  function over(one, values, most) {
    const [low, high] = span(), step = (one.end_s - one.begin_s) / values.length;
    let sum = 0, largest = 0;
    values.forEach((value, at) => {
      const seconds = Math.min(high, one.begin_s + (at + 1) * step) - Math.max(low, one.begin_s + at * step);
      if (seconds <= 1e-9 * step) return;
      sum += value * seconds;
      largest = Math.max(largest, value);
    });
    return most ? largest : sum / (high - low);
  }

  // At the cursor, or the mean of the stretch that is shown.
  function tell() {
    const rows = shown().map((label) => {
      const one = curves[label];
      return [make("bdi", {}, labelName(label, state.setting.name, names)), ...columns().map((panel) => {
        const values = one[panel.key];
        if (!values.length) return NOTHING;
        const found = state.cursor === null ? over(one, values, panel.most) : values[pointAt(one, state.cursor)] ?? 0;
        return panel.text(found * panel.scale);
      })];
    });
    table.replaceChildren(grid([what, ...columns().map((panel) => panel.name)], rows, 1));
    const stretch = state.cursor === null ? `Means from ${duration(span()[0])} to ${duration(span()[1])}` : `At ${duration(state.cursor)}`;
    const seeds = content.seeds > 1 ? ` over ${content.seeds} seeds` : "";
    said.textContent = `${stretch}${seeds}; a run that has ended counts as zero. Drag to zoom in; + and ${MINUS} zoom with the keyboard, arrows move, Escape shows the whole run.`;
  }

  function zoom(low, high) {
    const [begin, end] = ends();
    if (low === null || high - low >= end - begin) state.span = null;
    else if (high - low > (end - begin) / 500) {
      const shift = Math.max(begin - low, 0) + Math.min(end - high, 0);
      state.span = [low + shift, high + shift];
    }
    refresh();
  }
  function refresh() { chart.again(); tell(); }
  function all() { keys.replaceChildren(legend(state.setting, state.hidden, refresh, names, what)); refresh(); }

  const where = (event) => timeAt(placeOf(event, chart.drawing)[0]);
  chart.drawing.addEventListener("pointerdown", (event) => { from = where(event); chart.drawing.setPointerCapture(event.pointerId); });
  chart.drawing.addEventListener("pointermove", (event) => { state.cursor = where(event); mark(); tell(); });
  chart.drawing.addEventListener("pointerleave", () => { if (from === null) { state.cursor = null; mark(); tell(); } });
  chart.drawing.addEventListener("pointerup", (event) => {
    const began = from, to = where(event);
    from = null;
    if (began !== null && Math.abs(x(began) - x(to)) > 4) { state.cursor = null; zoom(Math.min(began, to), Math.max(began, to)); } else {
      mark();
      clock.tell(to, by);
    }
  });
  let told = 0; // what is played moves the line with every frame, and the numbers as fast as they can be read
  clock.heard.push({ by, hear: (time) => {
    state.cursor = clamp(time, ...span());
    mark();
    if (performance.now() - told < 150) return;
    told = performance.now();
    said.setAttribute("aria-live", "off");
    tell();
  } });
  chart.drawing.addEventListener("dblclick", () => zoom(null));
  chart.drawing.addEventListener("keydown", (event) => {
    const [low, high] = span(), middle = state.cursor ?? (low + high) / 2, wide = high - low;
    if (event.key === "Escape") { state.cursor = null; zoom(null); }
    else if (event.key === "+" || event.key === "=") zoom(middle - wide / 4, middle + wide / 4);
    else if (event.key === "-") zoom(middle - wide, middle + wide);
    else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      event.preventDefault();
      const way = event.key === "ArrowLeft" ? -1 : 1;
      if (event.shiftKey) zoom(low + way * wide / 4, high + way * wide / 4);
      else { state.cursor = clamp(middle + way * wide / 100, low, high); mark(); tell(); }
    }
  });
  mount.append(make("div", { class: "controls" },
    settings.length > 1 ? selection("setting", settings.map((setting, at) => [at, setting.name || "default"]), (at) => { Object.assign(state, { setting: settings[at], span: null }); all(); }, 0) : null,
    make("button", { type: "button", onclick: () => zoom(null) }, "whole run")), keys, frame, said, table);
  all();
  return true;
}
