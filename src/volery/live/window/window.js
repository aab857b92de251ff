// Fetches the live part of a page again when something has changed, gives orders after a question, signs in and out.
const live = document.getElementById("live");
const problem = document.getElementById("problem");
const dialog = document.querySelector("dialog");
const field = document.getElementById("answer");
const pulse = document.getElementById("pulse");
const FETCH_MS = 30_000;
let every = 1000 * Number(live.dataset.every), idle = 1000 * Number(live.dataset.idle);
let last = performance.now(), planned = 0, plannedAt = Infinity, fetching = false;

function say(text) {
  problem.textContent = text;
  problem.hidden = !text;
}

// Whether what is shown is what the server says; the moment is the server's, whatever this machine's clock says.
function connected(yes) {
  if (!pulse) return;
  const told = yes ? "live" : `not connected: this is how it was at ${live.dataset.made} UTC`;
  if (pulse.textContent !== told) pulse.textContent = told;
  pulse.classList.toggle("lost", !yes);
}

function scrolledIn(part) {
  return part.querySelectorAll ? [...part.querySelectorAll(".scroll, pre")] : [];
}

// What the server has rendered takes the place of what is there, as far as it differs: the focus, what is selected and
// what was scrolled stay where they were. What a script goes on with itself (`data-keep`) stays as it is.
function replaceLive(fresh) {
  const focused = live.contains(document.activeElement) ? document.activeElement.id : "";
  const kept = new Map([...live.querySelectorAll(":scope > [data-keep]")].map((one) => [one.dataset.keep, one]));
  const before = [...live.childNodes];
  [...fresh.childNodes].forEach((part, place) => {
    const old = before[place], own = kept.get(part.dataset?.keep);
    if (own && (own === old || own.isConnected)) { if (own !== live.childNodes[place]) live.insertBefore(own, live.childNodes[place] || null); return; }
    const here = live.childNodes[place];
    if (!here || kept.has(here.dataset?.keep)) { live.insertBefore(part, here || null); return; }
    if (here.isEqualNode(part)) return;
    const scrolled = scrolledIn(here).map((one) => [one.scrollLeft, one.scrollTop]);
    here.replaceWith(part);
    scrolledIn(part).forEach((one, at) => { if (scrolled[at]) [one.scrollLeft, one.scrollTop] = scrolled[at]; });
  });
  while (live.childNodes.length > fresh.count) live.lastChild.remove();
}
