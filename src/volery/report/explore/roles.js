// What a film's camera saw: messages between roles on their way, where tasks wait, how old and wrong views are.
const FLIGHT_S = 0.6; // a message takes at least so long on the screen: at most speeds its own time is less than a frame
const READ_MS = 150; // numbers change no faster than they can be read

if (content.said) {
  const said = content.said;
  said.at = (time) => clamp(Math.floor((time - said.begin_s) / said.step_s), 0, said.bins - 1);
  // A belief that did not change since the interval before is not repeated.
  said.wrong = (by, time) => {
    let at = said.at(time);
    while (at > 0 && said.beliefs[by].wrong[at] === null) at--;
    return said.beliefs[by].wrong[at] || [];
  };
}

// A small curve in a table, with the moment that is shown.
function spark(values) {
  const high = values.reduce((most, value) => Math.max(most, value), 1e-9), width = 160, tall = 22;
  const y = (value) => (tall - 1 - (tall - 2) * Math.max(0, value) / high).toFixed(1);
  const drawing = draw("svg", { class: "spark", viewBox: `0 0 ${width} ${tall}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  const path = values.map((value, at) => `${at ? "L" : "M"}${(width * at / Math.max(1, values.length - 1)).toFixed(1)} ${y(value)}`).join("");
  const line = draw("line", { class: "cursor", y1: 0, y2: tall });
  drawing.append(draw("path", { d: path, fill: "none", stroke: "var(--accent)", "stroke-width": 1.4 }), line);
  drawing.addEventListener("click", (event) => {
    const box = drawing.getBoundingClientRect(), said = content.said;
    clock.tell(said.begin_s + said.step_s * said.bins * (event.clientX - box.left) / box.width, "curve");
  });
  return { drawing, move: (at) => { const x = width * at / Math.max(1, values.length - 1); line.setAttribute("x1", x); line.setAttribute("x2", x); } };
}

// A table whose numbers are told again for every moment; each row: name, curve, numbers of an interval, words.
function followed(heads, rows) {
  const cells = rows.map((row) => row.texts(0).map(() => make("td")));
  const curves = rows.map((row) => spark(row.curve));
  const body = rows.map((row, at) => make("tr", {}, make("td", { class: "text label" }, row.name), make("td", { class: "text" }, curves[at].drawing), ...cells[at], row.says === undefined ? null : make("td", { class: "text name soft" }, row.says)));
  const numbers = cells.length ? cells[0].length : 0;
  const head = make("tr", {}, ...heads.map((text, at) => make("th", { class: at < 2 || at >= 2 + numbers ? "text" : "" }, text)));
  const table = make("div", { class: "scroll", tabindex: "0" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
  return { table, tell: (at) => rows.forEach((row, place) => {
    curves[place].move(at);
    row.texts(at).forEach((text, number) => { if (cells[place][number].textContent !== text) cells[place][number].textContent = text; });
  }) };
}

views.roles = (mount) => {
  const said = content.said;
  if (!said) return false;
  const rows = new Map(said.roles.map((role, at) => [role.name, at]));
  const places = said.addresses.map((address) => {
    const [role, number] = address.split("/"), at = rows.get(role), count = at === undefined ? 1 : said.roles[at].count;
    return [((Number(number) || 0) % count + 0.5) / count, at ?? 0];
  });
  const starts = said.flights.map(([sent]) => said.begin_s + sent / 1e6);
  const longest = said.flights.reduce((most, [sent, heard]) => Math.max(most, (heard - sent) / 1e6), 0);
  const frame = make("div", { class: "flights" }), note = make("p", { class: "note" });
  let time = said.begin_s, told = 0;

  const shade = (kind) => colour(kind % COLOURS === 6 ? 7 : kind);
  const chart = canvas(frame, "Messages on their way between roles", () => 40 + 62 * Math.max(1, said.roles.length - 1), (drawing, width, tall) => {
    const gap = said.roles.length > 1 ? (tall - 40) / (said.roles.length - 1) : 0, left = 110, right = 14;
    const y = (row) => 20 + gap * row, x = (share) => left + (width - left - right) * share;
    const axis = draw("g", { class: "axis" });
    said.roles.forEach((role, row) => {
      axis.append(draw("text", { x: 0, y: y(row) + 4, class: "title" }, role.count > 1 ? `${role.name} (${whole(role.count)})` : role.name));
      axis.append(draw("line", { x1: x(0), x2: x(1), y1: y(row), y2: y(row) }));
      if (role.count <= 80) for (let at = 0; at < role.count; at++) axis.append(draw("circle", { cx: x((at + 0.5) / role.count), cy: y(row), r: 3, fill: "var(--soft)" }));
    });
    drawing.append(axis, draw("g", { class: "flying" }));
    chart.place = ([share, row]) => [x(share), y(row)];
    fly();
  });

  function fly() {
    const layer = chart && chart.drawing.querySelector(".flying");
    if (!layer) return;
    const least = clock.speed ? clock.speed * FLIGHT_S : said.step_s;
    const found = [];
    for (let at = bisect(starts, time - Math.max(least, longest)); at < starts.length && starts[at] <= time; at++) {
      const [sent, heard, from, to, kind] = said.flights[at], takes = Math.max(least, (heard - sent) / 1e6);
      const part = (time - starts[at]) / takes;
      if (part > 1) continue;
      const [x1, y1] = chart.place(places[from]), [x2, y2] = chart.place(places[to]);
      const x = x1 + (x2 - x1) * part, y = y1 + (y2 - y1) * part, tail = Math.max(0, part - 0.2);
      found.push(draw("line", { x1: x1 + (x2 - x1) * tail, y1: y1 + (y2 - y1) * tail, x2: x, y2: y, stroke: shade(kind), "stroke-width": 1.6, opacity: 0.6 }));
      found.push(draw("circle", { cx: x, cy: y, r: 4, fill: shade(kind) }));
    }
    layer.replaceChildren(...found);
  }

  const sums = said.sent.map((counts) => { let sum = 0; return counts.map((count) => (sum += count)); });
  const kinds = followed(["message", "over time", "in this moment", "so far", "what it says"], said.kinds.map((name, at) => ({
    name: make("span", {}, swatch(shade(at)), make("bdi", {}, name)), curve: said.sent[at], says: said.told[at],
    texts: (bin) => [whole(said.sent[at][bin]), whole(sums[at][bin])],
  })));
  const queues = followed(["role", "tasks that wait there", "now", "at one of them", "messages received"], said.roles.map((role) => ({
    name: role.count > 1 ? `${role.name} (${whole(role.count)})` : role.name, curve: role.waiting,
    texts: (bin) => [whole(role.waiting[bin]), whole(role.busiest[bin]), whole(role.received[bin])],
  })));
  const beliefs = said.beliefs.length ? followed(["view of", "slots about which it is wrong", "believed free, taken", "believed taken, free", "oldest part", "mean age"], said.beliefs.map((one) => ({
    name: one.by, curve: one.free.map((count, at) => count + one.taken[at]),
    texts: (bin) => {
      const ages = one.age_us.map((of) => of[bin]), known = ages.filter((age) => age >= 0), oldest = Math.max(...known);
      if (!known.length) return [whole(one.free[bin]), whole(one.taken[bin]), "nothing heard", NOTHING];
      return [whole(one.free[bin]), whole(one.taken[bin]), `${one.of[ages.indexOf(oldest)]}: ${duration(oldest / 1e6)}`, duration(known.reduce((sum, age) => sum + age, 0) / known.length / 1e6)];
    },
  }))) : null;
  const facts = Object.entries(said.facts).map(([name, counts]) => { let sum = 0; return [name, counts, counts.map((count) => (sum += count))]; });
  const counted = facts.length ? followed(["counted", "over time", "in this moment", "so far"], facts.map(([name, counts, so]) => ({
    name: name.replace(/_/g, " "), curve: counts, texts: (bin) => [whole(counts[bin]), whole(so[bin])],
  }))) : null;
  const tables = [kinds, queues, beliefs, counted].filter(Boolean);

  function tell() {
    const at = said.at(time), sent = said.sent.reduce((sum, counts) => sum + counts[at], 0);
    tables.forEach((one) => one.tell(at));
    note.textContent = `In the ${duration(said.step_s)} of this moment ${whole(sent)} messages were sent. Counts are of all of them; the picture shows at most ${content.said.shown} of a kind in each such interval, for at least ${digits(FLIGHT_S)} s while it plays.`;
  }
  function hear(moment) {
    time = moment;
    fly();
    if (clock.speed && performance.now() - told < READ_MS) return;
    told = performance.now();
    tell();
  }
  mount.append(frame, note, kinds.table, make("h3", {}, "Queues"), queues.table);
  if (beliefs) mount.append(make("h3", {}, "What schedulers believe"), beliefs.table, make("p", { class: "note" }, "Against what runs: slots believed free on which a task runs (a placement there is refused), and slots believed taken on which none does (yet). Age: since anything was heard from there."));
  if (counted) mount.append(make("h3", {}, "Inconsistencies and conflicts"), counted.table);
  clock.heard.push({ by: "roles", hear });
  tell();
  return true;
};

function swatch(shade) {
  const mark = draw("svg", { width: 14, height: 10, "aria-hidden": "true" });
  mark.append(draw("circle", { cx: 5, cy: 5, r: 4, fill: shade }));
  return mark;
}
