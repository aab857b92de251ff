// A kept run, played: the cluster as a field of cells, at any speed, forwards and back.
const SPEEDS = [[10, "10 s"], [30, "30 s"], [120, "2 min"], [600, "10 min"], [0, "real time"]];
const GAP = 1;

views.watch = (mount) => {
  const run = content.run, length = run.end_s - run.begin_s;
  const state = { time: run.begin_s, playing: false, lasts: 30, over: null };
  const field = make("canvas", { class: "field", tabindex: "0", role: "img", "aria-label": "the machines of the cluster" });
  const frame = make("div", {}, field), told = make("p", { class: "note" }), pointed = make("p", { class: "note", "aria-live": "polite" });
  const button = make("button", { type: "button", onclick: () => { if (!state.playing && state.time >= run.end_s) state.time = run.begin_s; play(!state.playing); } }, "play");
  const slider = make("input", { type: "range", min: 0, max: 1000, step: 1, value: 0, "aria-label": "time", oninput: () => { play(false); show(run.begin_s + length * Number(slider.value) / 1000); } });
  const starts = run.tasks && run.tasks.start_s, cells = run.tasks ? run.cells.length : run.groups.length;
  let colours = [], side = 10, columns = 1;

  function shades() {
    const style = getComputedStyle(document.documentElement);
    colours = ["--c0", "--c1", "--c2", "--c3", "--c4", "--c5", "--c7", "--c8", "--c9"].map((name) => style.getPropertyValue(name).trim());
    return { line: style.getPropertyValue("--line").trim(), ink: style.getPropertyValue("--ink").trim(), panel: style.getPropertyValue("--panel").trim(), accent: style.getPropertyValue("--accent").trim() };
  }

  // The task run in each cell at a moment, or none; where runs touch, the later one.
  function running(time) {
    const found = new Array(cells).fill(-1), last = bisect(starts, time, true);
    for (let at = 0; at < last; at++) if (run.tasks.end_s[at] > time) found[run.tasks.cell[at]] = at;
    return found;
  }
  const binAt = (time) => clamp(bisect(run.edges_s, time, true) - 1, 0, run.edges_s.length - 2);

  function layout() {
    const width = Math.max(1, Math.floor(frame.clientWidth)), most = clamp(width * 0.45, 160, 560);
    side = clamp(Math.floor(Math.sqrt(width * most / cells)), 4, 44);
    columns = Math.max(1, Math.floor(width / side));
    const scale = window.devicePixelRatio || 1, height = Math.ceil(cells / columns) * side;
    field.width = width * scale;
    field.height = height * scale;
    field.style.width = `${width}px`;
    field.style.height = `${height}px`;
    field.getContext("2d").setTransform(scale, 0, 0, scale, 0, 0);
  }

  function paint() {
    const pen = field.getContext("2d"), shade = shades();
    pen.clearRect(0, 0, field.width, field.height);
    const now = run.tasks ? running(state.time) : null, bin = run.tasks ? 0 : binAt(state.time);
    for (let cell = 0; cell < cells; cell++) {
      const left = (cell % columns) * side, top = Math.floor(cell / columns) * side, wide = side - GAP;
      pen.fillStyle = shade.line;
      pen.globalAlpha = 0.45;
      pen.fillRect(left, top, wide, wide);
      pen.globalAlpha = 1;
      if (run.tasks) {
        if (now[cell] < 0) continue;
        pen.fillStyle = colours[run.tasks.job[now[cell]] % colours.length];
        pen.fillRect(left, top, wide, wide);
        if (run.tasks.killed[now[cell]]) { pen.strokeStyle = shade.ink; pen.strokeRect(left + 1, top + 1, wide - 2, wide - 2); }
      } else {
        const busy = run.percent[cell][bin] / 100;
        pen.fillStyle = shade.accent;
        pen.fillRect(left, top + wide * (1 - busy), wide, wide * busy);
      }
      if (cell === state.over) { pen.strokeStyle = shade.ink; pen.strokeRect(left + 0.5, top + 0.5, wide - 1, wide - 1); }
    }
    describe(now, bin);
  }

  function describe(now, bin) {
    const busy = now ? now.filter((task) => task >= 0).length : null;
    told.textContent = now ? `At ${duration(state.time)}: ${whole(busy)} of ${whole(cells)} places run a task, in the colour of its job.`
      : `At ${duration(state.time)}: ${percent(run.percent.reduce((sum, row, at) => sum + row[bin] * run.groups[at][1], 0) / 100 / run.machines)} of the machines' capacity is in use; a cell fills as its machines do.`;
    if (state.over === null) { pointed.textContent = "Point at a cell, or move over the cells with the arrow keys."; return; }
    if (!now) {
      const [first, count] = run.groups[state.over];
      pointed.textContent = `${count > 1 ? `Machines ${whole(first)} to ${whole(first + count - 1)}` : `Machine ${whole(first)}`}: ${run.percent[state.over][bin]} % in use.`;
      return;
    }
    const [machine, lane] = run.cells[state.over], task = now[state.over];
    pointed.textContent = `Machine ${machine}, place ${lane}: ${task < 0 ? "idle" : `job ${run.tasks.job[task]}, task ${run.tasks.task[task]}, since ${duration(starts[task])} until ${duration(run.tasks.end_s[task])}${run.tasks.killed[task] ? ", then killed" : ""}`}.`;
  }

  function show(time, heard) {
    state.time = clamp(time, run.begin_s, run.end_s);
    slider.value = Math.round(1000 * (state.time - run.begin_s) / length);
    slider.setAttribute("aria-valuetext", duration(state.time));
    paint();
    if (!heard) clock.tell(state.time, "watch");
  }
  let before = null;
  function tick(now) {
    if (!state.playing) return;
    if (before !== null) show(state.time + (now - before) / 1000 * (state.lasts ? length / state.lasts : 1));
    before = now;
    if (state.time >= run.end_s) play(false); else requestAnimationFrame(tick);
  }
  function play(on) {
    state.playing = on;
    before = null;
    button.textContent = on ? "pause" : "play";
    if (on) requestAnimationFrame(tick);
  }

  const point = (cell) => { state.over = cell !== null && cell >= 0 && cell < cells ? cell : null; paint(); };
  field.addEventListener("pointermove", (event) => {
    const box = field.getBoundingClientRect(), column = Math.floor((event.clientX - box.left) / side);
    point(column < columns ? Math.floor((event.clientY - box.top) / side) * columns + column : null);
  });
  field.addEventListener("pointerleave", () => point(null));
  field.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
    if (step) { event.preventDefault(); point(clamp((state.over ?? -step) + step, 0, cells - 1)); }
    if (event.key === "Escape") point(null);
    if (event.key === " ") { event.preventDefault(); button.click(); }
  });
  mount.append(make("div", { class: "controls" }, button, selection("the whole run in", SPEEDS, (lasts) => { state.lasts = lasts; }, 30)), slider, told, frame, pointed);
  clock.heard.push({ by: "watch", hear: (time) => { play(false); show(time, true); } });
  new ResizeObserver(() => { layout(); paint(); }).observe(frame);
  layout();
  show(run.begin_s);
  return true;
};
