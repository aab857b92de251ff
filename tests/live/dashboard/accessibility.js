// What can be computed of a page's accessibility, as a list of complaints; see accessibility.py.
() => {
  const found = [], seen = (one) => one.checkVisibility({ checkVisibilityCSS: true }) && !one.closest("[aria-hidden=true]");
  const say = (one, what) => found.push(`${what}: ${one.outerHTML.slice(0, 120)}`);
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  for (const id of new Set(ids)) if (ids.filter((other) => other === id).length > 1) found.push(`two elements are called ${id}`);
  const named = (one) => one.getAttribute("aria-label") || one.textContent.trim() || one.title;
  for (const one of document.querySelectorAll("a[href], button, summary")) if (seen(one) && !named(one)) say(one, "no name");
  for (const one of document.querySelectorAll("input, select, textarea"))
    if (seen(one) && one.type !== "hidden" && !one.labels.length && !one.getAttribute("aria-label")) say(one, "no label");
  for (const one of document.querySelectorAll("[role=img], svg:not([aria-hidden])"))
    if (!one.getAttribute("aria-label") && !one.querySelector("title")) say(one, "a picture without words");
  for (const one of document.querySelectorAll("th")) {
    if (!one.textContent.trim()) say(one, "an empty head");
    if (!one.scope) say(one, "a head of nothing");
  }
  for (const one of document.querySelectorAll("[role=group], nav, [tabindex='0']"))
    if (!named(one)) say(one, "a region without a name");
  for (const one of document.querySelectorAll("*"))
    if (seen(one) && one.scrollWidth > one.clientWidth + 1 && ["auto", "scroll"].includes(getComputedStyle(one).overflowX) && one.tabIndex < 0
        && !one.querySelector("a, button")) say(one, "scrolls, and no key reaches it");
  const levels = [...document.querySelectorAll("h1, h2, h3, h4")].map((one) => Number(one.tagName[1]));
  if (levels.filter((level) => level === 1).length !== 1) found.push(`${levels} are not under one heading`);
  levels.forEach((level, at) => { if (at && level > levels[at - 1] + 1) found.push(`a heading is left out: ${levels}`); });
  if (!document.documentElement.lang || !document.title) found.push("no language, or no title");

  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const over = ([r, g, b, a], under) => [r, g, b].map((part, at) => (part * a + under[at] * (255 - a)) / 255);
  const light = (colour) => {
    const [r, g, b] = colour.map((part) => { const v = part / 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (one, other) => { const [low, high] = [light(one), light(other)].sort((a, b) => a - b); return (high + 0.05) / (low + 0.05); };
  const ground = (one) => {
    const layers = [];
    for (let at = one; at; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((under, layer) => over(layer, under), rgba(getComputedStyle(document.body).backgroundColor).slice(0, 3));
  };
  const shadowed = (one) => /inset/.test(getComputedStyle(one).boxShadow) && /-2[0-9]px/.test(getComputedStyle(one).boxShadow);
  for (const one of document.querySelectorAll("body *")) {
    if (one.closest("svg, script, noscript") || !seen(one) || one.disabled || ![...one.childNodes].some((child) => child.nodeType === 3 && child.data.trim())) continue;
    const style = getComputedStyle(one), size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const fill = shadowed(one) ? rgba(/rgba?\([^)]*\)|color\([^)]*\)/.exec(style.boxShadow)[0]).slice(0, 3) : ground(one);
    const told = ratio(over(rgba(style.color), fill), fill);
    if (told < (large ? 3 : 4.5)) say(one, `contrast ${told.toFixed(2)}`);
  }
  return [...new Set(found)].slice(0, 20);
}
