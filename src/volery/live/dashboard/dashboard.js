// Fetches the live part of a page again when something has changed, gives orders after a question, signs in and out.
const live = document.getElementById("live");
const problem = document.getElementById("problem");
const dialog = document.querySelector("dialog");
const field = document.getElementById("answer");
const pulse = document.getElementById("pulse");
const FETCH_MS = 30_000;
let every = 1000 * Number(live.dataset.again), idle = 1000 * Number(live.dataset.idle), tag = live.dataset.tag;
let last = performance.now(), planned = 0, plannedAt = 0, fetching = false;

function say(text) {
  problem.textContent = text;
  problem.hidden = !text;
}

// Whether what is shown is what the server says; the moment is the server's, whatever the clock here says.
function connected(yes) {
  const told = yes ? "live" : `not connected; this is how it was at ${live.dataset.made}`;
  if (pulse.textContent !== told) pulse.textContent = told;
  pulse.classList.toggle("lost", !yes);
}

function put(part, old) {
  const within = (one) => (one.querySelectorAll ? [...one.querySelectorAll(".scroll, pre")] : []);
  const scrolled = within(old).map((one) => [one.scrollLeft, one.scrollTop]);
  old.replaceWith(part);
  within(part).forEach((one, place) => { if (scrolled[place]) [one.scrollLeft, one.scrollTop] = scrolled[place]; });
}

// What the server has rendered takes the place of what is there, as far as it differs: the focus and what was scrolled
// or selected stay where they were. What goes on by itself (`data-keep`) stays as it is.
function replaceLive(fresh) {
  const focused = live.contains(document.activeElement) ? document.activeElement.id : "";
  const kept = new Map([...live.querySelectorAll(":scope > [data-keep]")].map((one) => [one.dataset.keep, one]));
  const wanted = [...fresh.childNodes].map((part) => kept.get(part.dataset?.keep) ?? part);
  const stay = new Set(wanted.filter((part) => part.parentNode === live));
  let at = live.firstChild;
  const drop = () => { const old = at; at = at.nextSibling; old.remove(); };
  for (const part of wanted) {
    if (stay.has(part)) {
      while (at && at !== part) drop();
      at = part.nextSibling;
    } else if (at && !stay.has(at)) {
      const next = at.nextSibling;
      if (!at.isEqualNode(part)) put(part, at);
      at = next;
    } else live.insertBefore(part, at);
  }
  while (at) drop();
  Object.assign(live.dataset, fresh.dataset);
  const again = focused && document.activeElement?.id !== focused && document.getElementById(focused);
  if (again) {
    if (again.classList.contains("cell")) reach(again);
    again.focus({ preventScroll: true });
  }
}

// The answer to a request for the live part of a page; null: another page must be shown, and the browser is on its way.
async function asked(address, known) {
  const headers = known ? { "volery-part": "live", "if-none-match": known } : { "volery-part": "live" };
  const answer = await fetch(address, { credentials: "same-origin", headers, signal: AbortSignal.timeout(FETCH_MS) });
  if (!answer.redirected) return answer;
  location.reload();
  return null;
}

async function partOf(answer) {
  const found = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("live");
  if (!found) throw new Error("no page of ours");
  return found;
}

// Who tells what it has takes what others were told not long ago; after an order a page wants what holds now.
async function refresh(known) {
  if (fetching || dialog.open) return;
  fetching = true;
  let behind = false;
  try {
    const answer = await asked(location.href, known);
    if (!answer) return;
    const read = answer.status === 304 ? null : await partOf(answer);
    if (read && !dialog.open) { replaceLive(read); tag = answer.headers.get("etag"); }
    every = Math.max(100, 1000 * Number(answer.headers.get("volery-again")) || every);  // the server's word: what costs more is asked for less often
    behind = answer.headers.has("volery-behind");
    pulse.title = `looked at again every ${Math.max(1, Math.round(every / 1000))} s, if something has changed`;
    const at = new Date(answer.headers.get("date") || NaN);
    if (!Number.isNaN(at.valueOf())) live.dataset.made = at.toISOString().slice(0, 19).replace("T", " ") + "Z";
    connected(true);
  } catch (error) {
    connected(false);
  } finally {
    fetching = false;
    last = performance.now();
    plan(behind);
  }
}

// After a change at most once in the page's period, and without any now and then; not while nobody looks.
function plan(changed) {
  if (document.hidden || !live.dataset.pulse || !every || (!changed && !idle)) return;
  const at = last + (changed ? every : Math.max(every, idle));
  if (planned && plannedAt <= at) return;
  clearTimeout(planned);
  plannedAt = at;
  planned = setTimeout(() => { planned = 0; refresh(tag); }, Math.max(0, at - performance.now()));
}

async function order(path, body, method = "POST") {
  const headers = { "content-type": "application/json" };
  const answer = await fetch(path, { method, credentials: "same-origin", headers, body: JSON.stringify(body) }).catch(() => null);
  if (!answer) { say("The server does not answer: nothing is known to have been done."); return false; }
  if (answer.ok) return answer.json().catch(() => true);
  if (answer.status === 401) { location.reload(); return false; }
  const told = await answer.json().catch(() => null);
  say(told && told.error ? `${told.error.place}: ${told.error.problem}` : `${answer.status} ${answer.statusText}`);
  return false;
}

// The answer is whether it was yes; where a number is asked for, the number stands in its field.
function confirmed(question, name, value) {
  document.getElementById("question").textContent = question;
  document.getElementById("number").hidden = field.disabled = !name;
  document.getElementById("asked").textContent = name || "";
  field.value = value || "";
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((tell) => dialog.addEventListener("close", () => tell(dialog.returnValue === "yes"), { once: true }));
}

async function clicked(event) {
  const button = event.target.closest("button[data-order], button[data-leave]");
  if (!button) return;
  if (button.dataset.leave) {
    if (await order(`${button.dataset.leave}/end`, {})) location.href = "/";
    return;
  }
  const { order: path, question, number: name, value, body, then } = button.dataset;
  if (await confirmed(question, name, value)) {
    say("");
    const done = await (name ? order(path, { [name]: field.valueAsNumber }, "PUT") : order(path, JSON.parse(body || "{}")));
    if (done && then) { location.href = `${then}${done.id}`; return; }
    if (done) await refresh();
  }
  const again = document.getElementById(button.id);
  (again || live).focus({ preventScroll: true });
}

// One cell of a grid is reached by the tab key, the others from there by arrow keys.
function reach(cell) {
  for (const other of cell.parentElement.querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
  cell.tabIndex = 0;
}

function pressed(event) {
  const cell = event.target.closest(".cell");
  if (!cell) return;
  const cells = [...cell.parentElement.children], at = cells.indexOf(cell);
  const wide = cells.filter((one) => one.offsetTop === cells[0].offsetTop).length;
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: wide, ArrowUp: -wide, Home: -at, End: cells.length - 1 - at };
  const to = cells[at + steps[event.key]];
  if (!to) return;
  event.preventDefault();
  reach(to);
  to.focus();
}

// Whoever has typed a number means yes; by itself a browser takes the first button, which is no.
function answered(event) {
  if (event.key !== "Enter") return;
  event.preventDefault();
  document.getElementById("yes").click();
}

// What another page would show is shown here, in the form's own place.
async function filled(form) {
  const place = form.parentElement.querySelector("[data-filled]"), button = form.querySelector("button");
  button.disabled = true;
  place.replaceChildren(Object.assign(document.createElement("p"), { className: "soft", textContent: form.dataset.fill }));
  try {
    const query = new URLSearchParams(new FormData(form)).toString();
    const answer = await asked(query ? `${form.action}?${query}` : form.action);
    if (answer) place.replaceChildren(...(await partOf(answer)).childNodes);
  } catch (error) {
    place.replaceChildren();
    say("The server does not answer.");
  } finally {
    button.disabled = false;
  }
}

async function entered(event) {
  const form = event.target;
  if (form.dataset.fill) { event.preventDefault(); await filled(form); return; }
  if (!form.dataset.enter) return;
  event.preventDefault();
  say("");
  if (await order(form.dataset.enter, { token: form.elements.token.value })) location.replace(form.dataset.then);
}

document.addEventListener("click", clicked);
document.addEventListener("keydown", pressed);
document.addEventListener("submit", entered);
field.addEventListener("keydown", answered);
document.addEventListener("visibilitychange", () => plan(true));
if (live.dataset.pulse) plan(false);
