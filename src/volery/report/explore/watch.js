// A run, played: the cluster as a field of cells, at any speed, forwards and back, and what happened in it.
const SPEEDS = [[10, "10 s"], [30, "30 s"], [60, "1 min"], [120, "2 min"], [600, "10 min"], [0, "real time"], [-10, "real time / 10"], [-1000, "real time / 1,000"]];
const STEPS = 400;

views.watch = (mount) => {
  const run = content.run, said = content.said, length = run.end_s - run.begin_s;
  const state = { time: run.begin_s, playing: false, lasts: 30, over: null, by: -1 };
  const told = make("p", { class: "note" }), pointed = make("p", { class: "note", "aria-live": "polite" });
  const button = make("button", { type: "button", onclick: () => { if (!state.playing && state.time >= run.end_s) state.time = run.begin_s; play(!state.playing); } }, "play");
  const slider = make("input", { type: "range", min: 0, max: 1000, step: 1, value: 0, "aria-label": "time", oninput: () => { play(false); show(run.begin_s + length * Number(slider.value) / 1000); } });
  const starts = run.tasks && run.tasks.start_s, cells = run.tasks ? run.cells.length : run.groups.length;
  const machineOf = (cell) => (run.tasks ? run.cells[cell][0] : run.groups[cell][0]);
  let now = null, bin = 0, wrong = new Map();

  // The task run in each cell at a moment, or none; where runs touch, the later one.
  function running(time) {
    const found = new Array(cells).fill(-1), last = bisect(starts, time, true);
    for (let at = 0; at < last; at++) if (run.tasks.end_s[at] > time) found[run.tasks.cell[at]] = at;
    return found;
  }
  const binAt = (time) => clamp(bisect(run.edges_s, time, true) - 1, 0, run.edges_s.length - 2);

  const field = cellField("the machines of the cluster", {
    count: () => cells,
    paint: (pen, cell, box, shade) => {
      if (!run.tasks) fillCell(pen, box, run.percent[cell][bin] / 100, shade.accent, shade);
      else if (now[cell] < 0) fillCell(pen, box, 0, shade.line, shade);
      else {
        fillCell(pen, box, 1, shade.jobs[run.tasks.job[now[cell]] % shade.jobs.length], shade);
        if (run.tasks.killed[now[cell]]) frameCell(pen, box, shade.ink, 1);
      }
      const found = wrong.get(machineOf(cell));
      if (found) mistaken(pen, box, found, cell, shade);
    },
    over: (cell) => { state.over = cell; describe(); },
  });

  // What a scheduler believes of a cell and is not so: a corner above for free, one below for taken.
  function mistaken(pen, box, [free, taken], cell, shade) {
    const idle = run.tasks && now[cell] < 0;
    if (free && !idle) cornerCell(pen, box, shade.wrong, true, shade);
    if (taken && !(run.tasks && !idle)) cornerCell(pen, box, shade.missed, false, shade);
  }

  function describe() {
    const busy = now ? now.filter((task) => task >= 0).length : null;
    told.textContent = now ? `At ${duration(state.time)}: ${whole(busy)} of ${whole(cells)} places run a task, in the colour of its job.`
      : `At ${duration(state.time)}: ${percent(run.percent.reduce((sum, row, at) => sum + row[bin] * run.groups[at][1], 0) / 100 / run.machines)} of the machines' capacity is in use; a cell fills as its machines do.`;
    if (state.by >= 0) {
      const one = said.beliefs[state.by], at = said.at(state.time);
      told.textContent += ` ${one.by} believes ${whole(one.free[at])} slots free that are taken (a corner above), and ${whole(one.taken[at])} taken on which nothing runs (a corner below; tasks on their way count).`;
    }
    if (state.over === null) { pointed.textContent = "Point at a cell, or move over the cells with the arrow keys. Space plays, comma and full stop step, n and p go to the next and previous moment."; return; }
    const found = wrong.get(machineOf(state.over));
    const belief = found ? ` ${said.beliefs[state.by].by} believes ${found[0] ? `${whole(found[0])} slots free that are taken` : ""}${found[0] && found[1] ? ", " : ""}${found[1] ? `${whole(found[1])} taken on which nothing runs` : ""}.` : "";
    if (!now) {
      const [first, count] = run.groups[state.over];
      pointed.textContent = `${count > 1 ? `Machines ${whole(first)} to ${whole(first + count - 1)}` : `Machine ${whole(first)}`}: ${run.percent[state.over][bin]} % in use.${belief}`;
      return;
    }
    const [machine, lane] = run.cells[state.over], task = now[state.over];
    pointed.textContent = `Machine ${machine}, place ${lane}: ${task < 0 ? "idle" : `job ${run.tasks.job[task]}, task ${run.tasks.task[task]}, since ${duration(starts[task])} until ${duration(run.tasks.end_s[task])}${run.tasks.killed[task] ? ", then killed" : ""}`}.${belief}`;
  }

  function show(time, heard) {
    state.time = clamp(time, run.begin_s, run.end_s);
    slider.value = Math.round(1000 * (state.time - run.begin_s) / length);
    slider.setAttribute("aria-valuetext", duration(state.time));
    now = run.tasks ? running(state.time) : null;
    bin = run.tasks ? 0 : binAt(state.time);
    wrong = new Map(state.by < 0 ? [] : said.wrong(state.by, state.time).map(([machine, free, taken]) => [machine, [free, taken]]));
    field.again();
    describe();
    if (!heard) clock.tell(state.time, "watch");
  }
  const speed = () => (state.lasts > 0 ? length / state.lasts : state.lasts ? 1 / -state.lasts : 1);
  let before = null;
  function tick(moment) {
    if (!state.playing) return;
    if (before !== null) show(state.time + (moment - before) / 1000 * speed());
    before = moment;
    if (state.time >= run.end_s) play(false); else requestAnimationFrame(tick);
  }
  function play(on) {
    state.playing = on;
    clock.speed = on ? speed() : 0;
    before = null;
    button.textContent = on ? "pause" : "play";
    if (on) requestAnimationFrame(tick);
  }

  const moments = content.moments || [], nearly = length * 1e-6;
  const jump = (time) => { play(false); show(time); };
  function toMoment(way) {
    const next = way > 0 ? moments.find(([at]) => at > state.time + nearly) : [...moments].reverse().find(([at]) => at < state.time - nearly);
    if (next) { jump(next[0]); pointed.textContent = `${duration(next[0])}: ${next[1]}.`; }
  }
  const list = moments.length ? make("label", { class: "choice" }, make("span", { class: "soft" }, "go to "),
    make("select", { onchange: (event) => { if (event.target.value) jump(Number(event.target.value)); } },
      make("option", { value: "" }, "a moment"), ...moments.map(([at, what]) => make("option", { value: at }, `${duration(at)}: ${what}`)))) : null;
  const views_of = said && said.beliefs.length ? selection("show what is wrong in the view of", [[-1, "nobody"], ...said.beliefs.map((one, at) => [at, one.by])], (by) => { state.by = by; show(state.time, true); }, -1) : null;
  mount.addEventListener("keydown", (event) => {
    if (event.target instanceof HTMLSelectElement || event.ctrlKey || event.metaKey || event.altKey) return;
    const keys = { ",": () => jump(state.time - length / STEPS), ".": () => jump(state.time + length / STEPS), n: () => toMoment(1), p: () => toMoment(-1) };
    if (event.key === " " && event.target === field.field) { event.preventDefault(); button.click(); } else if (keys[event.key]) keys[event.key]();
  });
  mount.append(make("div", { class: "controls" }, button,
    selection("the whole run in", SPEEDS, (lasts) => { state.lasts = lasts; if (state.playing) clock.speed = speed(); }, 30),
    make("button", { type: "button", title: "previous moment (p)", onclick: () => toMoment(-1), hidden: !moments.length }, "\u25c0"), list,
    make("button", { type: "button", title: "next moment (n)", onclick: () => toMoment(1), hidden: !moments.length }, "\u25b6"), views_of),
  slider, told, field.frame, pointed);
  clock.heard.push({ by: "watch", hear: (time) => { play(false); show(time, true); } });
  show(run.begin_s);
  return true;
};
