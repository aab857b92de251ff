// Follows the output of a task that runs: what is new is appended, and stays in view for whoever is at its end.
const known = new WeakSet(), SOON_MS = 1000, LATER_MS = 4000, SHOWN_MAX = 64_000;

function toEnd(pre) { pre.scrollTop = pre.scrollHeight; }

async function follow(part) {
  const streams = [...part.querySelectorAll("pre[data-stream]")];
  let wait = SOON_MS;
  while (part.isConnected) {
    await new Promise((go) => setTimeout(go, wait));
    if (document.hidden || !part.isConnected) continue;
    const asked = new URLSearchParams(streams.map((pre) => [pre.dataset.stream, pre.dataset.at]));
    asked.set("attempt", part.dataset.attempt);
    let told = null;
    try {
      const answer = await fetch(`${part.dataset.tail}?${asked}`, { credentials: "same-origin", signal: AbortSignal.timeout(FETCH_MS) });
      if (answer.redirected) return;
      told = await answer.json();
    } catch (error) { wait = LATER_MS; continue; }
    wait = Math.min(LATER_MS, wait * 1.5);
    for (const pre of streams) {
      const piece = told[pre.dataset.stream];
      if (!piece) continue;
      if (piece.text) { append(pre, piece); wait = SOON_MS; }
      document.getElementById(`size-${pre.dataset.stream}`).textContent = piece.told;
    }
    if (told.over) { plan(true); return; }
  }
}

function append(pre, piece) {
  if (piece.strange) { pre.dataset.at = piece.end; pre.hidden = false; pre.textContent = piece.text; return; }
  const atEnd = pre.scrollHeight - pre.scrollTop - pre.clientHeight < 40;
  pre.dataset.at = piece.end;
  pre.hidden = false;
  let text = pre.textContent + (piece.skipped ? `\n[${piece.skipped.toLocaleString("en")} bytes left out]\n` : "") + piece.text;
  if (text.length > SHOWN_MAX) text = text.slice(text.indexOf("\n", text.length - SHOWN_MAX / 2) + 1);
  pre.textContent = text;
  if (atEnd) toEnd(pre);
}

// Logs that are shown for the first time: their end is what one wants to see.
function attendLogs() {
  for (const part of live.querySelectorAll("pre[data-stream], [data-tail]")) {
    if (known.has(part)) continue;
    known.add(part);
    if (part.dataset.tail) follow(part);
    else if (!part.scrollTop) toEnd(part);
  }
}

new MutationObserver(attendLogs).observe(live, { childList: true, subtree: true });
attendLogs();
