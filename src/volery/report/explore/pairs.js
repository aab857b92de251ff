// The same jobs under two architectures: where their delays lie, and which jobs differ most.
views.pairs = (mount) => {
  const settings = content.settings.filter((setting) => setting.members.length > 1 && (content.serves || content.pairs.some((pair) => setting.members.includes(pair.a))));
  if (!settings.length) return false;
  const cells = content.cells, margin = { left: 58, right: 12, top: 8, bottom: 40 };
  const state = { setting: settings[0], a: 0, b: 1, pair: null };
  const frame = make("div", { class: "square" }), list = make("div"), choose = make("div", { class: "controls" });
  const said = make("p", { class: "note", role: "status", "aria-live": "polite" }), read = make("p", { class: "note", "aria-live": "polite" });
  const name = (label) => labelName(label, state.setting.name);

  // Pairs are kept once; the other way round is the same, turned.
  function kept(a, b) {
    const one = content.pairs.find((pair) => (pair.a === a && pair.b === b) || (pair.a === b && pair.b === a));
    return one ? turned(one, a) : null;
  }
  function turned(one, a) {
    const counts = [...unpacked(one.cells)].map(([cell, count]) => [Math.floor(cell / (cells + 1)), cell % (cells + 1), count]);
    if (one.a === a) return { ...one, counts };
    return { ...one, a: one.b, b: one.a, a_lower: one.b_lower, b_lower: one.a_lower, a_s: one.b_s, b_s: one.a_s, counts: counts.map(([column, row, count]) => [row, column, count]) };
  }
  // The upper bound of a column or row: that of the last fine bin in it.
  const bound = (cell) => (cell === 0 ? 0 : boundOf(Math.ceil(cell * content.grid.bins / cells)));
  const place = (delay) => {
    const { low_s: low, high_s: high, bins } = content.grid;
    return delay <= 0 ? 0.5 : 1 + cells * clamp((Math.log(Math.max(delay, low) / low) / Math.log(high / low) * (bins - 1) + 0.5) / bins, 0, 1);
  };

  const chart = canvas(frame, "Delay of each job under two architectures", (width) => Math.min(width, 560), (drawing, width, height) => {
    if (!state.pair) return;
    const sideX = (width - margin.left - margin.right) / (cells + 1), sideY = (height - margin.top - margin.bottom) / (cells + 1);
    const x = (cell) => margin.left + cell * sideX, y = (cell) => height - margin.bottom - cell * sideY;
    const most = Math.log(1 + Math.max(1, ...state.pair.counts.map(([, , count]) => count)));
    const axis = draw("g", { class: "axis" });
    for (const delay of marks(width / 110)) {
      const at = place(delay), text = roundDuration(delay);
      axis.append(draw("line", { x1: x(at), x2: x(at), y1: margin.top, y2: height - margin.bottom }), draw("line", { x1: margin.left, x2: width - margin.right, y1: y(at), y2: y(at) }));
      axis.append(draw("text", { x: x(at), y: height - margin.bottom + 15, "text-anchor": "middle" }, text), draw("text", { x: margin.left - 6, y: y(at) + 4, "text-anchor": "end" }, text));
    }
    drawing.append(axis);
    for (const [column, row, count] of state.pair.counts) {
      const cell = draw("rect", { x: x(column), y: y(row + 1), width: sideX + 0.3, height: sideY + 0.3, fill: "var(--accent)", "fill-opacity": (0.12 + 0.88 * Math.log(1 + count) / most).toFixed(3) });
      cell.append(draw("title", {}, `${whole(count)} jobs: up to ${duration(bound(column))} under ${name(state.pair.a)}, up to ${duration(bound(row))} under ${name(state.pair.b)}`));
      cell.addEventListener("pointerenter", () => { read.textContent = cell.firstChild.textContent; });
      drawing.append(cell);
    }
    drawing.append(draw("line", { class: "cursor", x1: x(0), y1: y(0), x2: x(cells + 1), y2: y(cells + 1) }));
    state.pair.job.forEach((job, at) => {
      const dot = draw("circle", { class: "outlier", cx: x(place(state.pair.a_s[at])), cy: y(place(state.pair.b_s[at])), r: 3.5 });
      dot.append(draw("title", {}, `job ${job}, seed ${state.pair.seed[at]}: ${duration(state.pair.a_s[at])} and ${duration(state.pair.b_s[at])}`));
      dot.addEventListener("pointerenter", () => { read.textContent = dot.firstChild.textContent; });
      drawing.append(dot);
    });
    axis.append(draw("text", { x: width - margin.right, y: height - 6, "text-anchor": "end" }, "delay under a \u2192"), draw("text", { x: margin.left + 4, y: margin.top + 10 }, "\u2191 delay under b"));
  });

  let asked = 0;
  async function show() {
    const a = state.setting.members[state.a], b = state.setting.members[state.b], mine = ++asked;
    let found = a === b ? null : kept(a, b), problem = a === b ? "Choose two different architectures." : "This page does not hold this pair; volery browse does.";
    if (!found && a !== b && content.serves) {
      try { found = turned(await ask("pair", { a, b }), a); } catch (error) { problem = `The server does not answer: ${error.message}`; }
    }
    if (mine !== asked) return;
    state.pair = found;
    read.textContent = "";
    chart.again();
    if (!found) { said.textContent = problem; list.replaceChildren(); return; }
    const equal = found.jobs - found.a_lower - found.b_lower;
    said.replaceChildren(`${whole(found.jobs)} jobs that both have measured. Less delay under a, `, make("bdi", {}, name(a)), `: ${whole(found.a_lower)} (${percent(found.a_lower / found.jobs)}); under b, `, make("bdi", {}, name(b)), `: ${whole(found.b_lower)} (${percent(found.b_lower / found.jobs)}); equal: ${whole(equal)}. The deeper a cell, the more jobs; below the line b is better. Circles: the jobs that differ most.`);
    const least = content.grid.low_s;
    const rows = found.job.map((job, at) => {
      const factor = Math.max(found.a_s[at], least) / Math.max(found.b_s[at], least);
      return [String(found.seed[at]), String(job), duration(found.a_s[at]), duration(found.b_s[at]), factor < 1 ? "a" : "b", `${digits(Math.max(factor, 1 / factor))}\u00d7`];
    });
    list.replaceChildren(make("h3", {}, "Jobs that differ most"), rows.length ? grid(["seed", "job", "delay under a", "delay under b", "less under", "by"], rows, 0) : make("p", { class: "note" }, "All delays are equal."));
  }
  function fill() {
    Object.assign(state, { a: 0, b: 1 });
    const names = state.setting.members.map((label, at) => [at, name(label)]);
    choose.replaceChildren(settings.length > 1 ? selection("setting", settings.map((setting, at) => [at, setting.name || "default"]), (at) => { state.setting = settings[at]; fill(); }, settings.indexOf(state.setting)) : "",
      selection("a", names, (at) => { state.a = at; show(); }, 0), selection("b", names, (at) => { state.b = at; show(); }, 1));
    show();
  }
  mount.append(choose, said, frame, read, list);
  fill();
  return true;
};
