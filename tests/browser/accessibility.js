// What can be measured of accessibility on the parts of the page that match `scope`, those that match `theirs` left
// out: a list of complaints.
([scope, theirs]) => {
  const complaints = [];
  const parts = [...document.querySelectorAll(scope)];
  const within = (selector) => parts.flatMap((part) => [...part.querySelectorAll(selector)]);
  const shown = (element) => element.checkVisibility({ visibilityProperty: true }) && element.getClientRects().length > 0
    && !element.closest(".visually-hidden") && !(theirs && element.closest(theirs));
  const told = (element) => `<${element.tagName.toLowerCase()} class="${element.getAttribute("class") ?? ""}"> `
    + `"${(element.textContent ?? "").trim().slice(0, 40)}"`;
  const named = (element) => {
    const by = (element.getAttribute("aria-labelledby") ?? "").split(/\s+/).filter(Boolean)
      .map((id) => document.getElementById(id)?.textContent ?? "").join(" ");
    const labels = [...(element.labels ?? [])].map((label) => label.textContent).join(" ");
    const drawn = element.querySelector?.("title, img[alt]");
    return [element.getAttribute("aria-label"), by, labels, element.title, element.getAttribute("placeholder"),
      drawn?.textContent || drawn?.getAttribute?.("alt"),
      /^(INPUT|SELECT|TEXTAREA)$/.test(element.tagName) ? (element.type === "submit" ? element.value : "") : element.textContent,
    ].some((text) => (text ?? "").trim());
  };

  // Names and roles
  if (!document.documentElement.lang) complaints.push("the page names no language");
  const controls = within("a[href], button, input:not([type=hidden]), select, textarea, summary").filter(shown);
  for (const each of controls) if (!named(each)) complaints.push(`no name: ${told(each)}`);
  for (const each of within("svg[role=img]").filter(shown)) if (!named(each)) complaints.push(`no name: ${told(each)}`);
  for (const each of within("th").filter(shown)) if (!each.scope) complaints.push(`a header without scope: ${told(each)}`);
  for (const each of within("table.pgjobs-table")) if (!each.caption) complaints.push(`a table without caption: ${told(each)}`);
  const ids = [...document.querySelectorAll("[id]")].map((each) => each.id);
  for (const id of new Set(ids.filter((id, at) => ids.indexOf(id) !== at))) complaints.push(`two elements have the id ${id}`);

  // Headings: one of the first level, no level left out.
  const headings = within("h1, h2, h3, h4, h5, h6").filter(shown);
  if (headings.filter((each) => each.tagName === "H1").length !== 1) complaints.push("not exactly one h1");
  headings.reduce((before, each) => {
    const level = Number(each.tagName[1]);
    if (level > before + 1) complaints.push(`h${level} after h${before}: ${told(each)}`);
    return level;
  }, 0);

  // Contrast of text: 4.5 to 1, large text 3 to 1.
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, under) => [0, 1, 2].map((n) => top[n] * top[3] + under[n] * (1 - top[3])).concat(1);
  const ground = (element) => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) layers.push(rgba(getComputedStyle(each).backgroundColor));
    const page = matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18, 1] : [255, 255, 255, 1];
    return layers.reverse().reduce((under, top) => over(top, under), page);
  };
  const light = (colour) => colour.slice(0, 3).map((n) => n / 255)
    .map((n) => (n <= 0.04045 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4))
    .reduce((sum, n, at) => sum + n * [0.2126, 0.7152, 0.0722][at], 0);
  const seen = new Set();
  for (const part of parts) {
    const walker = document.createTreeWalker(part, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const element = node.parentElement;
      if (!node.data.trim() || seen.has(element) || !shown(element) || element.closest("[disabled]")) continue;
      seen.add(element);
      const style = getComputedStyle(element);
      const under = ground(element);
      const front = light(over(rgba(element.closest("svg") ? style.fill : style.color), under));
      const ratio = (Math.max(front, light(under)) + 0.05) / (Math.min(front, light(under)) + 0.05);
      const size = parseFloat(style.fontSize);
      const wanted = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
      if (ratio < wanted) complaints.push(`contrast ${ratio.toFixed(2)}, wanted ${wanted}: ${told(element)}`);
    }
  }

  // Targets: 24 px, or so much room around. Links in running text are free to be as high as the text.
  const boxes = controls.filter((each) => !each.disabled).map((each) => [each, each.getBoundingClientRect()]);
  for (const [each, box] of boxes) {
    if ((box.width >= 24 && box.height >= 24) || (each.tagName === "A" && getComputedStyle(each).display === "inline")) continue;
    const x = box.x + box.width / 2, y = box.y + box.height / 2;
    const crowded = boxes.some(([other, its]) => other !== each && !other.contains(each) && !each.contains(other)
      && Math.hypot(Math.max(its.left - x, 0, x - its.right), Math.max(its.top - y, 0, y - its.bottom)) < 12);
    if (crowded) complaints.push(`${box.width.toFixed(0)} by ${box.height.toFixed(0)} px and no room around: ${told(each)}`);
  }

  // Nothing is wider than the window.
  if (document.documentElement.scrollWidth > innerWidth) {
    const wide = within("*").filter((each) => shown(each) && each.getBoundingClientRect().right > innerWidth + 1
      && !each.parentElement.closest(".pgjobs-scroll, pre"));
    complaints.push(`the page is ${document.documentElement.scrollWidth} px wide in a window of ${innerWidth}: `
      + wide.slice(0, 3).map(told).join(", "));
  }
  return complaints;
}
