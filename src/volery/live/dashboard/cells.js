// The nodes as a field of cells that fill as their slots do; between what is fetched they move.
const MOVE_MS = document.getElementById("recording") ? 150 : 700;

function movingCells(mount) {
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const told = document.createElement("p");
  told.className = "soft";
  let cells = [], before = new Map(), since = 0, over = null;

  const share = ([, , slots, running]) => (slots ? Math.min(1, running / slots) : 0);
  function describe() {
    if (over === null || !cells[over]) { told.textContent = "A cell fills as the slots of its nodes do; drained nodes have a frame, lost ones a cross. Point at one, or move with the arrow keys."; return; }
    const [first, nodes, slots, running, drained, lost, free, taken] = cells[over];
    const wrong = [free ? `${free} believed free that are taken` : "", taken ? `${taken} believed taken on which nothing runs yet` : ""].filter(Boolean).join(", ");
    told.textContent = `${nodes > 1 ? `${nodes} nodes from ${first}` : first}: ${running} of ${slots} slots run a task${drained ? `, ${nodes > 1 ? `${drained} drained` : "drained"}` : ""}${lost ? `, ${nodes > 1 ? `${lost} lost` : "lost"}` : ""}${wrong ? `; ${wrong}` : ""}.`;
  }
  const drawn = cellField("how busy nodes are", {
    count: () => cells.length,
    paint: (pen, at, box, shade) => {
      const cell = cells[at], now = share(cell), from = before.get(cell[0]) ?? now;
      const part = still ? 1 : Math.min(1, (performance.now() - since) / MOVE_MS);
      fillCell(pen, box, from + (now - from) * part, shade.accent, shade);
      if (cell[4]) frameCell(pen, box, shade.wrong, 2);
      if (cell[5]) crossCell(pen, box, shade.wrong, 2);
      if (cell[6]) cornerCell(pen, box, shade.wrong, true, shade);
      if (cell[7]) cornerCell(pen, box, shade.missed, false, shade);
    },
    over: (cell) => { over = cell; describe(); },
    chosen: (cell) => { if (cells[cell][1] === 1) location.href = `${mount.dataset.nodes}/${cells[cell][0]}`; },
  });
  function move() {
    drawn.again();
    if (!still && performance.now() - since < MOVE_MS) requestAnimationFrame(move);
  }
  function take() {
    const fresh = JSON.parse(document.getElementById("cells")?.dataset.cells || "[]");
    if (JSON.stringify(fresh) === JSON.stringify(cells)) return;
    before = new Map(cells.map((cell) => [cell[0], share(cell)]));
    [cells, since] = [fresh, performance.now()];
    describe();
    move();
  }
  mount.append(drawn.frame, told);
  new MutationObserver(take).observe(document.getElementById("live"), { childList: true });
  take();
}

if (document.getElementById("field")) movingCells(document.getElementById("field"));
