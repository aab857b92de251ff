// Tables that sort by any column; a cell that spans rows belongs to each of them.
const SCALES = { "\u00b5s": 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600, d: 86400 };

// The number that a cell shows, in the unit's base, or null where it shows none.
function numberOf(text) {
  const found = /^([+\u2212-]?)([\d,]+(?:\.\d+)?(?:e[+-]?\d+)?)\s*(\S*)/.exec(text.trim());
  if (!found) return null;
  const size = Number(found[2].replaceAll(",", "")) * (SCALES[found[3]] ?? 1);
  return found[1] && found[1] !== "+" ? -size : size;
}

function rowsOf(body) {
  const rows = [...body.rows];
  let carried = null, left = 0;
  for (const row of rows) {
    if (left > 0) {
      row.prepend(carried.cloneNode(true));
      left--;
    } else if (row.cells[0] && row.cells[0].rowSpan > 1) {
      left = row.cells[0].rowSpan - 1;
      row.cells[0].rowSpan = 1;
      carried = row.cells[0];
    }
  }
  return rows;
}

function sortable(table) {
  const head = table.tHead && table.tHead.rows[0], body = table.tBodies[0];
  if (!head || !body || body.rows.length < 2 || table.dataset.sorts) return;
  table.dataset.sorts = "yes";
  [...head.cells].forEach((cell, column) => {
    const button = make("button", { type: "button", class: "sort", onclick: () => sort(table, column) });
    button.append(...cell.childNodes);
    cell.append(button);
  });
}

function sort(table, column) {
  const head = table.tHead.rows[0].cells[column], body = table.tBodies[0];
  const falling = head.getAttribute("aria-sort") === "ascending";
  const keyed = rowsOf(body).map((row) => {
    const text = row.cells[column] ? row.cells[column].textContent : "";
    return { row, text, number: numberOf(text) };
  });
  const way = falling ? -1 : 1;
  keyed.sort((a, b) => {
    if (a.number !== null && b.number !== null) return way * (a.number - b.number);
    if (a.number !== null || b.number !== null) return a.number === null ? 1 : -1;
    return way * a.text.localeCompare(b.text);
  });
  for (const cell of table.tHead.rows[0].cells) cell.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", falling ? "descending" : "ascending");
  body.replaceChildren(...keyed.map((one) => one.row));
}
