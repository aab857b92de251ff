// Fetches the live part of a page again when something has changed, gives orders after a question, signs in and out.
const live = document.getElementById("live");
const problem = document.getElementById("problem");
const dialog = document.querySelector("dialog");
const field = document.getElementById("answer");
const pulse = document.getElementById("pulse");
let every = 1000 * Number(live.dataset.again), tag = live.dataset.tag, last = Date.now(), planned = 0, fetching = false;

function say(text) {
  problem.textContent = text;
  problem.hidden = !text;
}

// What the server has rendered takes the place of what is there; the focus and what was scrolled stay where they were.
function replaceLive(fresh) {
  const focused = live.contains(document.activeElement) ? document.activeElement.id : "";
  const scrolled = [...live.querySelectorAll(".scroll, pre")].map((one) => [one.scrollLeft, one.scrollTop]);
  live.replaceChildren(...fresh.childNodes);
  [...live.querySelectorAll(".scroll, pre")].forEach((one, place) => { if (scrolled[place]) [one.scrollLeft, one.scrollTop] = scrolled[place]; });
  const again = focused && document.getElementById(focused);
  if (again) {
    if (again.classList.contains("cell")) reach(again);
    again.focus({ preventScroll: true });
  }
}

// Who tells what it has takes what others were told not long ago; after an order a page wants what holds now.
async function refresh(known) {
  if (fetching || dialog.open) return;
  fetching = true;
  let behind = false;
  try {
    const headers = known ? { "volery-part": "live", "if-none-match": known } : { "volery-part": "live" };
    const answer = await fetch(location.href, { credentials: "same-origin", headers });
    if (answer.redirected) { location.reload(); return; }
    const read = answer.status === 304 ? null : new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("live");
    if (read && !dialog.open) { replaceLive(read); tag = answer.headers.get("etag"); }
    every = Math.max(100, 1000 * Number(answer.headers.get("volery-again")) || every);  // the server's word: what costs more is asked for less often
    behind = answer.headers.has("volery-behind");
    last = Date.now();
    pulse.title = `looked at again every ${Math.max(1, Math.round(every / 1000))} s, if something has changed`;
  } catch (error) {
    pulse.textContent = "not connected";
  } finally {
    fetching = false;
  }
  if (behind) plan();
}

// At most once in the page's period, and not while nobody looks.
function plan() {
  if (planned || document.hidden) return;
  planned = setTimeout(() => { planned = 0; refresh(tag); }, Math.max(0, last + every - Date.now()));
}

async function order(path, body, method = "POST") {
  const answer = await fetch(path, { method, credentials: "same-origin", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  if (answer.ok) return true;
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
  const { order: path, question, number: name, value } = button.dataset;
  if (await confirmed(question, name, value)) {
    say("");
    if (await (name ? order(path, { [name]: field.valueAsNumber }, "PUT") : order(path, {}))) await refresh();
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

async function entered(event) {
  const form = event.target.closest("form[data-enter]");
  if (!form) return;
  event.preventDefault();
  say("");
  if (await order(form.dataset.enter, { token: form.elements.token.value })) location.replace(form.dataset.then);
}

document.addEventListener("click", clicked);
document.addEventListener("keydown", pressed);
document.addEventListener("submit", entered);
field.addEventListener("keydown", answered);
document.addEventListener("visibilitychange", plan);
if (live.dataset.pulse && every) {
  const changes = new EventSource(live.dataset.pulse);
  changes.addEventListener("open", () => { pulse.textContent = "live"; plan(); });
  changes.addEventListener("error", () => { pulse.textContent = "not connected"; });
  changes.addEventListener("changed", plan);
}
