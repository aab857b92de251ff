// The cluster as a field of cells, on pages of runs and of live federations: its layout, pointer and keyboard.
const FIELD_GAP = 1;

function fieldShades() {
  const style = getComputedStyle(document.documentElement), of = (name) => style.getPropertyValue(name).trim();
  return {
    line: of("--line"), ink: of("--ink"), accent: of("--accent"), wrong: of("--c1"), missed: of("--c4"),
    jobs: ["--c0", "--c2", "--c3", "--c4", "--c5", "--c7", "--c8", "--c9"].map(of),
  };
}

// An empty cell, filled from below as far as a share of it is in use.
function fillCell(pen, box, share, colour, shade) {
  pen.globalAlpha = 0.45;
  pen.fillStyle = shade.line;
  pen.fillRect(box.left, box.top, box.side, box.side);
  pen.globalAlpha = 1;
  pen.fillStyle = colour;
  pen.fillRect(box.left, box.top + box.side * (1 - share), box.side, box.side * share);
}

function frameCell(pen, box, colour, wide) {
  pen.strokeStyle = colour;
  pen.lineWidth = wide;
  pen.strokeRect(box.left + wide / 2, box.top + wide / 2, box.side - wide, box.side - wide);
}

// A triangle in the upper right corner, or in the lower left one.
function cornerCell(pen, box, colour, above, shade) {
  const half = Math.max(3, box.side * 0.6), { left, top, side } = box;
  const points = above ? [[left + side - half, top], [left + side, top], [left + side, top + half]] : [[left, top + side - half], [left + half, top + side], [left, top + side]];
  pen.beginPath();
  points.forEach(([x, y]) => pen.lineTo(x, y));
  pen.closePath();
  pen.fillStyle = colour;
  pen.fill();
  pen.strokeStyle = shade.ink;
  pen.lineWidth = 0.8;
  pen.stroke();
}

function crossCell(pen, box, colour, wide) {
  pen.strokeStyle = colour;
  pen.lineWidth = wide;
  pen.beginPath();
  pen.moveTo(box.left + wide, box.top + wide);
  pen.lineTo(box.left + box.side - wide, box.top + box.side - wide);
  pen.moveTo(box.left + box.side - wide, box.top + wide);
  pen.lineTo(box.left + wide, box.top + box.side - wide);
  pen.stroke();
}

// Cells from left to right and top to bottom; `paint(pen, cell, box, shade)` draws one, `over(cell)` hears which is
// pointed at (or null), `chosen(cell)` which is clicked.
function cellField(name, { count, paint, over, chosen }) {
  const field = document.createElement("canvas"), frame = document.createElement("div");
  field.className = "field";
  field.tabIndex = 0;
  field.setAttribute("role", "img");
  field.setAttribute("aria-label", name);
  frame.append(field);
  let side = 10, columns = 1, at = null, last = 0;

  function layout() {
    const cells = Math.max(1, count()), width = Math.max(1, Math.floor(frame.clientWidth));
    const unit = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16 || 1;
    const most = Math.min(560 * unit, Math.max(160, width * 0.45)), scale = window.devicePixelRatio || 1;
    side = Math.min(44 * unit, Math.max(4, Math.floor(Math.sqrt(width * most / cells))));
    columns = Math.max(1, Math.floor(width / side));
    const height = Math.ceil(cells / columns) * side;
    field.width = width * scale;
    field.height = height * scale;
    field.style.width = `${width}px`;
    field.style.height = `${height}px`;
    field.getContext("2d").setTransform(scale, 0, 0, scale, 0, 0);
  }
  function again() {
    if (count() !== last) { last = count(); layout(); }
    const pen = field.getContext("2d"), shade = fieldShades();
    pen.clearRect(0, 0, field.width, field.height);
    for (let cell = 0; cell < last; cell++) {
      const box = { left: (cell % columns) * side, top: Math.floor(cell / columns) * side, side: side - FIELD_GAP };
      paint(pen, cell, box, shade);
      if (cell === at) frameCell(pen, box, shade.ink, 2);
    }
  }
  function point(cell) {
    at = cell !== null && cell >= 0 && cell < count() ? cell : null;
    over(at);
    again();
  }
  field.addEventListener("pointermove", (event) => {
    const box = field.getBoundingClientRect(), column = Math.floor((event.clientX - box.left) / side);
    point(column < columns ? Math.floor((event.clientY - box.top) / side) * columns + column : null);
  });
  field.addEventListener("pointerleave", () => point(null));
  field.addEventListener("click", () => { if (at !== null && chosen) chosen(at); });
  field.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
    if (step) { event.preventDefault(); point(Math.min(count() - 1, Math.max(0, (at ?? -step) + step))); }
    if (event.key === "Escape") point(null);
    if (event.key === "Enter" && at !== null && chosen) chosen(at);
  });
  new ResizeObserver(() => { layout(); again(); }).observe(frame);
  return { frame, field, again };
}
