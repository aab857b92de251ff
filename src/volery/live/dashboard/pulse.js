// Hears from the server that something has changed. A browser keeps six connections to a server over HTTP/1.1, and a
// stream takes one for good: so one page that is being looked at listens, and tells the others of this browser.
const AGAIN_MS = [1000, 2000, 5000, 10_000];
const others = window.BroadcastChannel ? new BroadcastChannel("volery pulse") : null;
let stream = null, letGo = null, tried = 0;

function heard(what, here) {
  if (what === "lost") connected(false);
  else if (what === "open") { if (pulse.classList.contains("lost")) refresh(); else connected(true); }
  else plan(true);
  if (here && others) others.postMessage(what);
}

function listen() {
  if (document.hidden || stream) return;
  const opened = stream = new EventSource(live.dataset.pulse);
  opened.addEventListener("open", () => { tried = 0; heard("open", true); });
  opened.addEventListener("changed", () => heard("changed", true));
  opened.addEventListener("error", () => {
    heard("lost", true);
    if (opened.readyState !== EventSource.CLOSED || stream !== opened) return;
    // It was refused: by a server that knows nobody any more, or by something on the way to it.
    stream = null;
    refresh();
    setTimeout(listen, AGAIN_MS[Math.min(tried++, AGAIN_MS.length - 1)]);
  });
}

function leave() {
  if (stream) stream.close();
  stream = null;
  if (letGo) letGo();
  letGo = null;
}

// Whoever has the lock listens, until it is no longer looked at; where there are no locks each page does.
function attend() {
  if (document.hidden) { leave(); return; }
  if (letGo) return;
  if (!navigator.locks) { listen(); return; }
  const waiting = new AbortController(), held = new Promise((done) => { letGo = () => { waiting.abort(); done(); }; });
  const mine = letGo;
  navigator.locks.request("volery pulse", { signal: waiting.signal }, () => {
    if (letGo !== mine) return undefined;
    listen();
    return held;
  }).catch(() => {});
}

if (live.dataset.pulse && every) {
  if (others) {
    others.addEventListener("message", (event) => {
      if (event.data !== "asked") heard(event.data, false);
      else if (stream && stream.readyState === EventSource.OPEN) others.postMessage("open");
    });
    others.postMessage("asked");
  }
  document.addEventListener("visibilitychange", attend);
  window.addEventListener("pagehide", leave);
  window.addEventListener("pageshow", (event) => { if (event.persisted) { refresh(); attend(); } });
  attend();
}
