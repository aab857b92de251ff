// Distribution of job delay: read it, choose a range of delay or of percentiles, and see which jobs are in it.
const CLASS_NAMES = { all: "all jobs", short: "short jobs", long: "long jobs" };
const PAGE_ROWS = 50;

// Counts of one label and class, cumulative at the bounds of the bins.
function cumulative(counted) {
  const total = new Float64Array(content.grid.bins + 1);
  for (const [bin, count] of unpacked(counted.bins)) total[bin] = count;
  for (let bin = 1; bin < total.length; bin++) total[bin] += total[bin - 1];
  return total;
}

// The upper bound of a bin, seconds.
function boundOf(bin) {
  const { low_s: low, high_s: high, bins } = content.grid;
  if (bin <= 0) return 0;
  return bin >= bins ? high : low * (high / low) ** ((bin - 1) / Math.max(1, bins - 1));
}

// The bins (from, to] that hold percentiles above p to q of these counts.
function binsBetween(total, p, q) {
  const all = total[total.length - 1];
  return [bisect(total, p * all, true) - 1, bisect(total, q * all - 1e-9)];
}

// The delay that a share of the jobs in (from, to] does not exceed, to the bound of a bin.
function percentileIn(total, from, to, share) {
  const before = from < 0 ? 0 : total[from], inside = total[to] - before;
  return inside > 0 ? boundOf(bisect(total, before + share * inside - 1e-9)) : null;
}

views.delays = (mount) => {
  if (!content.settings.some((setting) => setting.members.some((label) => content.counted[label].all))) return false;
  const bins = content.grid.bins, margin = { left: 46, right: 12, top: 10, bottom: 34 };
  const state = { setting: content.settings[0], jobs: "all", hidden: new Set(), by: "delay", cursor: null, range: null, page: 0 };
  const zeros = content.counted.some((classes) => classes.all && classes.all.bins[0] === 0);
  const frame = make("div"), table = make("div"), list = make("div"), keys = make("div");
  const said = make("p", { class: "note", role: "status", "aria-live": "polite" });
  const known = new Map();
  const of = (label) => {
    const key = `${label} ${state.jobs}`;
    const counted = content.counted[label][state.jobs];
    if (counted && !known.has(key)) known.set(key, cumulative(counted));
    return known.get(key) || null;
  };
  const shown = () => state.setting.members.filter((label) => !state.hidden.has(label) && of(label));
  const occurring = () => Object.keys(CLASS_NAMES).filter((jobs) => state.setting.members.some((label) => content.counted[label][jobs]));

  // Bin to x; delays of zero have a place of their own at the left.
  let span = [0, 1];
  const x = (bin) => (zeros ? (bin <= 0 ? span[0] : span[0] + 24 + (span[1] - span[0] - 24) * ((bin - 1) / (bins - 1)))
    : span[0] + (span[1] - span[0]) * (Math.max(0, bin - 1) / (bins - 1)));
  const binAt = (at) => {
    const from = span[0] + (zeros ? 24 : 0);
    if (zeros && at < span[0] + 12) return 0;
    return clamp(Math.round(1 + (bins - 1) * ((at - from) / (span[1] - from))), 1, bins);
  };
  let tall = [0, 1];
  const y = (share) => tall[1] - (tall[1] - tall[0]) * share;
  const shareAt = (at) => clamp((tall[1] - at) / (tall[1] - tall[0]), 0, 1);
  const layer = draw("g");

  const chart = canvas(frame, "Share of jobs that are delayed by at most so much", (width) => clamp(width * 0.5, 220, 620), (drawing, width, height) => {
    span = [margin.left, width - margin.right];
    tall = [margin.top, height - margin.bottom];
    const axis = draw("g", { class: "axis" });
    for (const share of [0, 0.25, 0.5, 0.75, 0.9, 1]) {
      axis.append(draw("line", { x1: span[0], x2: span[1], y1: y(share), y2: y(share) }));
      axis.append(draw("text", { x: span[0] - 6, y: y(share) + 4, "text-anchor": "end" }, `${100 * share} %`));
    }
    const { low_s: low, high_s: high } = content.grid;
    for (const delay of marks(width / 90)) {
      const at = x(1 + (bins - 1) * Math.log(delay / low) / Math.log(high / low));
      axis.append(draw("line", { x1: at, x2: at, y1: tall[0], y2: tall[1] }));
      axis.append(draw("text", { x: at, y: tall[1] + 15, "text-anchor": "middle" }, roundDuration(delay)));
    }
    if (zeros) axis.append(draw("text", { x: span[0], y: tall[1] + 15, "text-anchor": "middle" }, "0"));
    axis.append(draw("text", { x: span[1], y: tall[1] + 30, "text-anchor": "end" }, "delay of a job is at most (log scale)"));
    drawing.append(axis);
    for (const label of shown()) {
      const total = of(label), all = total[bins];
      let path = "", before = -1;
      for (let bin = 0; bin <= bins; bin++) {
        if (total[bin] === before || (before < 0 && total[bin] === 0)) continue;
        const at = x(bin).toFixed(1);
        path += path ? `H${at}V${y(total[bin] / all).toFixed(1)}` : `M${at} ${y(0).toFixed(1)}V${y(total[bin] / all).toFixed(1)}`;
        before = total[bin];
      }
      drawing.append(draw("path", { d: `${path}H${span[1]}`, fill: "none", stroke: colour(label), "stroke-width": 2, "stroke-dasharray": dash(label), "data-label": label }));
    }
    drawing.append(layer);
    mark();
  });

  function mark() {
    layer.replaceChildren();
    if (state.range) {
      const [from, to] = state.range;
      layer.append(state.by === "delay"
        ? draw("rect", { class: "brush", x: x(from), y: tall[0], width: Math.max(1, x(to) - x(from)), height: tall[1] - tall[0] })
        : draw("rect", { class: "brush", x: span[0], y: y(to), width: span[1] - span[0], height: Math.max(1, y(from) - y(to)) }));
    }
    if (state.cursor === null) return;
    const across = state.by === "delay";
    layer.append(across ? draw("line", { class: "cursor", x1: x(state.cursor), x2: x(state.cursor), y1: tall[0], y2: tall[1] })
      : draw("line", { class: "cursor", x1: span[0], x2: span[1], y1: y(state.cursor), y2: y(state.cursor) }));
    for (const label of shown()) {
      const total = of(label), all = total[bins];
      const bin = across ? state.cursor : bisect(total, state.cursor * all - 1e-9);
      layer.append(draw("circle", { cx: x(bin), cy: y(across ? total[bin] / all : state.cursor), r: 4, fill: colour(label) }));
    }
  }

  // The bins that are chosen for a label: (from, to].
  function chosen(total) {
    if (!state.range) return [-1, bins];
    return state.by === "delay" ? [state.range[0] - 1, state.range[1]] : binsBetween(total, ...state.range);
  }

  function tell() {
    const rows = shown().map((label) => {
      const total = of(label), all = total[bins], [from, to] = chosen(total);
      const before = from < 0 ? 0 : total[from], inside = total[to] - before;
      const count = state.range && state.by === "percentile" ? Math.round((state.range[1] - state.range[0]) * all) : inside;
      const exact = content.counted[label][state.jobs].whole;
      const within = (share) => (state.by === "delay" ? percentileIn(total, from, to, share)
        : boundOf(bisect(total, (state.range[0] + share * (state.range[1] - state.range[0])) * all - 1e-9)));
      const values = state.range ? [0.5, 0.9, 0.95, 0.99, 1].map(within) : [exact.p50, exact.p90, exact.p95, exact.p99, exact.max];
      let read = NOTHING;
      if (state.cursor !== null) read = state.by === "delay" ? percent(total[state.cursor] / all) : duration(boundOf(bisect(total, state.cursor * all - 1e-9)));
      return [make("bdi", {}, labelName(label, state.setting.name)), whole(count), percent(count / all), read,
        ...values.map((value) => (value === null ? NOTHING : duration(value)))];
    });
    const at = state.cursor === null ? "at the cursor" : state.by === "delay" ? `\u2264 ${duration(boundOf(state.cursor))}` : `at ${(100 * state.cursor).toFixed(1)} %`;
    table.replaceChildren(grid(["architecture", "jobs", "share", at, "p50", "p90", "p95", "p99", "longest"], rows, 1));
  }

  function describe() {
    const seeds = content.seeds > 1 ? `, ${content.seeds} seeds together` : "";
    if (!state.range) {
      said.textContent = `${CLASS_NAMES[state.jobs]}${seeds}. Drag over the picture to choose a range (or Shift with the arrow keys; Escape undoes it).`;
      return;
    }
    const [from, to] = state.range;
    const range = state.by === "delay" ? `delays ${from <= 0 ? "" : `above ${duration(boundOf(from - 1))} `}up to ${duration(boundOf(to))}`
      : `percentiles ${(100 * from).toFixed(1)} to ${(100 * to).toFixed(1)} of each architecture`;
    const exact = state.by === "delay" ? "Counts are exact" : "The jobs listed are those of the bins that hold these percentiles";
    said.textContent = `${CLASS_NAMES[state.jobs]}${seeds}: ${range}. ${exact}; percentiles within the range are rounded up by at most ${(100 * (boundOf(2) / boundOf(1) - 1)).toFixed(1)} %.`;
  }

  function held(label) {
    const rows = content.rows[label], [from, to] = chosen(of(label)), found = [];
    rows.bin.forEach((bin, at) => {
      if (bin > from && bin <= to && (state.jobs === "all" || rows.is_long[at] === Number(state.jobs === "long"))) found.push(at);
    });
    return found.map((at) => [label, rows.seed[at], rows.job[at], rows.tasks[at], rows.submit_s[at], rows.delay_s[at]]);
  }

  async function found() {
    const labels = shown(), first = state.page * PAGE_ROWS;
    if (content.serves) {
      const ranges = labels.map((label) => chosen(of(label)));
      return ask("jobs", { labels, from: ranges.map(([from]) => from), to: ranges.map(([, to]) => to), class: state.jobs, first, count: PAGE_ROWS });
    }
    const rows = labels.flatMap(held).sort((a, b) => b[5] - a[5] || a[0] - b[0] || a[1] - b[1] || a[2] - b[2]);
    const some = labels.some((label) => content.rows[label].job.length < content.rows[label].total);
    return { total: rows.length, rows: rows.slice(first, first + PAGE_ROWS), some };
  }

  let asked = 0;
  async function which() {
    const mine = ++asked;
    if (!state.range || !shown().length) { list.replaceChildren(); return; }
    let answer;
    try {
      answer = await found();
    } catch (problem) {
      answer = { total: 0, rows: [], problem };
    }
    if (mine !== asked) return;
    const rows = answer.rows.map(([label, seed, job, tasks, submit, delay]) => [
      make("bdi", {}, labelName(label, state.setting.name)), String(seed), String(job), whole(tasks), duration(submit), duration(delay)]);
    const step = (by, name, off) => make("button", { type: "button", disabled: off, onclick: () => { state.page += by; which(); } }, name);
    const note = answer.problem ? `The server does not answer: ${answer.problem.message}`
      : answer.some ? `${whole(answer.total)} of these jobs are kept in this page, the most delayed of all among them; volery browse shows every one.` : `${whole(answer.total)} jobs.`;
    const more = answer.total > PAGE_ROWS ? make("p", { class: "controls" }, step(-1, "previous", state.page === 0), step(1, "next", (state.page + 1) * PAGE_ROWS >= answer.total)) : null;
    list.replaceChildren(make("h3", {}, "Jobs in the range, the most delayed first"), make("p", { class: "note" }, note));
    if (rows.length) list.append(grid(["architecture", "seed", "job", "tasks", "submitted at", "delay"], rows, 1));
    if (more) list.append(more);
  }

  function set(range) {
    state.range = range;
    state.page = 0;
    mark(); describe(); tell(); which();
  }
  function all() {
    keys.replaceChildren(legend(state.setting, state.hidden, refresh));
    refresh();
  }
  function refresh() { chart.again(); describe(); tell(); which(); }

  const where = (event) => {
    const [left, top] = placeOf(event, chart.drawing);
    return state.by === "delay" ? binAt(left) : Math.round(1000 * shareAt(top)) / 1000;
  };
  const ordered = (a, b) => (a <= b ? [a, b] : [b, a]);
  let from = null;
  chart.drawing.addEventListener("pointerdown", (event) => {
    from = where(event);
    chart.drawing.setPointerCapture(event.pointerId);
  });
  chart.drawing.addEventListener("pointermove", (event) => {
    state.cursor = where(event);
    if (from !== null && from !== state.cursor) state.range = ordered(from, state.cursor);
    mark(); tell();
  });
  chart.drawing.addEventListener("pointerup", (event) => {
    const to = where(event);
    if (from !== null) set(from === to ? null : ordered(from, to));
    from = null;
  });
  chart.drawing.addEventListener("pointerleave", () => { if (from === null) { state.cursor = null; mark(); tell(); } });
  chart.drawing.addEventListener("keydown", (event) => {
    const way = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -20, PageUp: 20 }[event.key];
    if (event.key === "Escape") { state.cursor = null; set(null); return; }
    if (!way) return;
    event.preventDefault();
    const step = state.by === "delay" ? way * 4 : way / 200, end = state.by === "delay" ? bins : 1;
    const before = state.cursor === null ? (state.by === "delay" ? Math.round(bins / 2) : 0.5) : state.cursor;
    state.cursor = clamp(Math.round((before + step) * 1000) / 1000, 0, end);
    if (event.shiftKey) {
      const fixed = state.range && from === null ? (state.range[0] === before ? state.range[1] : state.range[0]) : before;
      set(fixed === state.cursor ? null : ordered(fixed, state.cursor));
    } else { mark(); tell(); }
  });

  const classes = make("span"), settle = () => {
    const kinds = occurring();
    state.jobs = "all";
    const kind = choice("jobs", kinds, (at) => { state.jobs = kinds[at]; state.page = 0; refresh(); });
    classes.replaceChildren(...(kind ? [kind] : []));
  };
  settle();
  mount.append(make("div", { class: "controls" }, settingsOf((setting) => { Object.assign(state, { setting, range: null, page: 0 }); settle(); all(); }),
    classes, choice("choose by", ["delay", "percentile"], (at) => { state.by = ["delay", "percentile"][at]; state.cursor = null; set(null); }),
    make("button", { type: "button", onclick: () => set(null) }, "whole range")), keys, frame, said, table, list);
  all();
  return true;
};

function settingsOf(chosen) {
  if (content.settings.length < 2) return null;
  return selection("setting", content.settings.map((setting, at) => [at, setting.name || "default"]), (at) => chosen(content.settings[at]), 0);
}
