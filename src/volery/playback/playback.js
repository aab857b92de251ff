// The clock of a recording: it plays, steps, jumps to moments and stops to read; the page shows what its address names.

(() => {
  const ASK_MS = 160, READ_MS = 500, WORD_MS = 210, READ_MAX_MS = 9000;
  const bar = document.getElementById("recording");
  if (!bar) return;
  const part = (id) => document.getElementById(id);
  const begin = Number(bar.dataset.begin), end = Number(bar.dataset.end), length = Math.max(end - begin, 1e-6);
  const moments = JSON.parse(bar.dataset.moments), scrub = part("scrub"), button = part("play"), clock = part("clock"), caption = part("caption");
  let at = Number(bar.dataset.at), playing = false, before = null, holding = 0, wanted = null, fetching = false, fetched = 0;

  const nearly = length * 1e-7;
  const clamp = (time) => Math.min(Math.max(time, begin), end);
  const text = (time) => String(Number(time.toFixed(6)));
  const shown = (time) => `${time.toFixed(length < 20 ? 3 : length < 2000 ? 2 : 0)} s`;
  function speed() {
    const lasts = Number(part("lasts").value);
    return lasts > 0 ? length / lasts : 1 / -lasts;
  }
  function addressAt(time, base = location.href) {
    const there = new URL(base, location.href), view = part("view")?.value;
    there.searchParams.set("at", text(time));
    if (view) there.searchParams.set("view", view); else there.searchParams.delete("view");
    return there;
  }

  // One page is asked for at a time; what was wanted meanwhile is asked for next.
  async function ask() {
    if (fetching || wanted === null) return;
    const time = wanted;
    [fetching, wanted, fetched] = [true, null, performance.now()];
    try {
      const answer = await fetch(addressAt(time), { credentials: "same-origin" });
      const read = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("live");
      if (read) replaceLive(read);
      say("");
    } catch (error) {
      say("The server that shows this recording does not answer; start it again.");
      play(false);
    } finally {
      fetching = false;
      if (wanted !== null) ask();
    }
  }
  function spoken(time) {
    const past = moments.findLast(([moment]) => moment <= time + nearly), text = past ? `${shown(past[0])}: ${past[1]}` : "";
    if (caption.textContent !== text) caption.textContent = text;
  }
  function put(time, now) {
    at = clamp(time);
    scrub.value = at;
    scrub.setAttribute("aria-valuetext", shown(at));
    part("at").value = text(at);
    const origin = Number(bar.dataset.origin);
    clock.textContent = origin ? `${new Date(1000 * (origin + at)).toISOString().slice(0, 19).replace("T", " ")}Z` : "";
    spoken(at);
    if (now || (playing && performance.now() - fetched >= ASK_MS)) { wanted = at; ask(); }
  }
  function kept() {
    history.replaceState(null, "", addressAt(at));
  }
  function jump(time) {
    play(false);
    put(time, true);
    kept();
  }
  function toMoment(way) {
    const next = way > 0 ? moments.find(([time]) => time > at + nearly) : moments.findLast(([time]) => time < at - nearly);
    if (next) jump(next[0]);
  }

  function tick(now) {
    if (!playing) return;
    if (before !== null && now >= holding) {
      const next = clamp(at + (now - before) / 1000 * speed());
      const stop = part("hold").checked ? moments.filter(([time]) => time > at + nearly && time <= next + nearly) : [];
      if (stop.length) {
        const time = stop[0][0], words = stop.filter(([other]) => other <= time + nearly).at(-1)[1].split(" ").length;
        holding = now + Math.min(READ_MAX_MS, READ_MS + WORD_MS * words);
        put(time, true);
      } else put(next);
    }
    before = now;
    if (at >= end && now >= holding) { play(false); put(end, true); } else requestAnimationFrame(tick);
  }
  function play(on) {
    if (on === playing) return;
    if (on && at >= end) at = begin;
    [playing, before, holding] = [on, null, 0];
    button.textContent = on ? "pause" : "play";
    if (on) requestAnimationFrame(tick); else kept();
  }

  // Whatever leads to another page of the recording leads to the same moment of it.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href]");
    if (!link || link.origin !== location.origin || link.hash) return;
    if (!new URL(link.href).searchParams.has("at")) link.href = addressAt(at, link.href);
  }, true);
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "get" || form.elements.namedItem("at")) return;
    for (const [name, value] of [["at", text(at)], ["view", part("view")?.value]]) {
      if (value) form.append(Object.assign(document.createElement("input"), { type: "hidden", name, value }));
    }
  }, true);
  document.addEventListener("keydown", (event) => {
    if (event.target.closest("input:not([type=range]), select, textarea, button, a, summary, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = length / 400;
    const keys = { " ": () => play(!playing), ",": () => jump(at - step), ".": () => jump(at + step), n: () => toMoment(1), p: () => toMoment(-1) };
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
  button.addEventListener("click", () => play(!playing));
  part("back").addEventListener("click", () => jump(at - length / 400));
  part("forth").addEventListener("click", () => jump(at + length / 400));
  part("previous").addEventListener("click", () => toMoment(-1));
  part("next").addEventListener("click", () => toMoment(1));
  scrub.addEventListener("input", () => { play(false); put(Number(scrub.value), true); });
  scrub.addEventListener("change", kept);
  part("view")?.addEventListener("change", () => { put(at, true); kept(); });
  part("moved").hidden = false;
  try {
    for (const id of ["lasts", "hold"]) {
      const box = part(id), name = id === "hold" ? "checked" : "value", was = sessionStorage.getItem(`recording-${id}`);
      if (was !== null) box[name] = id === "hold" ? was === "true" : was;
      box.addEventListener("change", () => sessionStorage.setItem(`recording-${id}`, box[name]));
    }
  } catch (error) { /* nothing is kept where that is forbidden */ }
  spoken(at);
})();
