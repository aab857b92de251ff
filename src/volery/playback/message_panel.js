// Messages on their way between roles: they move during playback, and are arrows while it is paused.

function flyingMessages(mount) {
  const FLIGHT_S = 0.6; // on the screen a message takes at least so long: at most speeds its own time is less than a frame
  const NAMED_MAX = 6; // arrows that have names while the playback is paused
  const SVG = "http://www.w3.org/2000/svg", LEFT = 120, RIGHT = 16, ROW = 74, TOP = 22;
  const draw = (name, attributes, text) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const drawing = draw("svg", { role: "img", "aria-label": "messages on their way between roles" }), still = draw("g", {}), layer = draw("g", {});
  const told = document.createElement("p");
  told.className = "soft";
  drawing.append(draw("defs", {}), still, layer);
  mount.append(drawing, told);
  let staging = null, time = null, wide = 0, unit = 1;

  const x = (share) => (LEFT + (wide - LEFT - RIGHT) * share), y = (row) => TOP + ROW * row;
  function layout() {
    if (!staging) return;
    unit = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16 || 1;
    wide = Math.max(240, mount.clientWidth / unit);
    const tall = TOP * 2 + ROW * Math.max(1, staging.roles.length - 1);
    drawing.setAttribute("viewBox", `0 0 ${wide} ${tall}`);
    drawing.setAttribute("height", tall * unit);
    drawing.setAttribute("width", wide * unit);
    still.replaceChildren(...staging.roles.flatMap(([name, count], row) => [
      draw("text", { x: 0, y: y(row) + 4 }, count > 1 ? `${name} (${count})` : name),
      draw("line", { x1: x(0), x2: x(1), y1: y(row), y2: y(row) }),
      ...(count <= 80 ? Array.from({ length: count }, (_, at) => draw("circle", { cx: x((at + 0.5) / count), cy: y(row), r: 3 })) : []),
    ]));
    fly();
  }
  function arrow([, , row, from, to_row, to, kind], part, name, order) {
    const [x1, y1, x2, y2] = [x(from), y(row), x(to), y(to_row)], level = row === to_row ? -26 : 0;
    const bend = (share) => [x1 + (x2 - x1) * share, y1 + (y2 - y1) * share + level * 4 * share * (1 - share)];
    const tail = part === null ? 0 : Math.max(0, part - 0.2), head = part === null ? 1 : part;
    const points = Array.from({ length: 9 }, (_, at) => bend(tail + (head - tail) * at / 8).map((value) => value.toFixed(1)).join(" "));
    const [hx, hy] = bend(head), found = [
      draw("path", { d: `M${points.join("L")}`, class: `flight kind${kind % 10}` }), draw("circle", { cx: hx.toFixed(1), cy: hy.toFixed(1), r: 4, class: `head kind${kind % 10}` }),
    ];
    if (name) {
      const [nx, ny] = bend(0.3 + 0.14 * (order % 4)), last = nx > wide - 150;
      found.push(draw("text", { x: nx + (last ? -8 : 8), y: ny + 4, class: "named", "text-anchor": last ? "end" : "start" }, name));
    }
    return found;
  }
  function fly() {
    if (!staging) return;
    const speed = film.speed(), now = time ?? staging.at_s, moves = speed && !film.holds();
    const since = moves ? speed * FLIGHT_S : staging.step_s, found = [], names = new Set();
    for (const one of staging.flights) {
      const [sent, heard, , , , , kind] = one, takes = Math.max(moves ? since : 0, heard - sent), part = (now - sent) / (takes || since);
      if (moves ? part < 0 || part > 1 : sent > now + 1e-9 || Math.max(heard, sent + since) < now) continue;
      const name = !moves && names.size < NAMED_MAX && !names.has(staging.kinds[kind]) ? staging.kinds[kind] : "";
      names.add(staging.kinds[kind]);
      found.push(...arrow(one, moves ? part : null, name, names.size));
    }
    layer.replaceChildren(...found);
    told.textContent = moves ? "A few messages of each kind are shown; counts are of all." : `Messages of the last ${film.shown(staging.step_s)}: ${[...names].join(", ") || "none"}.`;
  }
  function take() {
    const fresh = document.getElementById("staging");
    if (!fresh) return;
    const first = !staging;
    staging = JSON.parse(fresh.dataset.staging);
    if (first) layout(); else fly();
  }
  new MutationObserver(take).observe(document.getElementById("live"), { childList: true });
  new ResizeObserver(layout).observe(mount);
  film.heard.push((now) => { time = now; fly(); });
  take();
}

if (film && document.getElementById("stage")) flyingMessages(document.getElementById("stage"));
