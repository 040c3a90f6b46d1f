// Live regions, copy buttons and keyboard shortcuts of the operator's pages. Without this file all pages still work.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const find = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const remember = (key, on) => { try { localStorage.setItem(`pgjobs.${key}`, on ? "1" : ""); } catch { /* none */ } };
  const remembered = (key) => { try { return localStorage.getItem(`pgjobs.${key}`) === "1"; } catch { return false; } };
  const make = (tag, text, attributes = {}) => {
    const element = document.createElement(tag);
    element.textContent = text;
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };
  document.documentElement.classList.add("pgjobs-js");

  // --- Live regions: the server's own HTML of this page, asked for again, region by region.
  const sentOpen = new WeakMap();  // <details> as the server sent it, so that only a person's choice counts as use
  const sentHtml = new WeakMap();
  const noteSent = (region, html) => {
    sentHtml.set(region, html);
    all("details", region).forEach((each) => sentOpen.set(each, each.open));
  };
  const regions = () => all("[data-pgjobs-region]");
  const changed = (field) => {
    if (field.type === "hidden") return false;
    if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
    if (field.tagName !== "SELECT") return field.value !== field.defaultValue;
    const options = [...field.options];
    return field.multiple || options.some((each) => each.defaultSelected)
      ? options.some((each) => each.selected !== each.defaultSelected) : field.selectedIndex > 0;
  };
  const inUse = (region) => {
    const selection = document.getSelection();
    return region.contains(document.activeElement)
      || (selection.rangeCount > 0 && !selection.isCollapsed && selection.getRangeAt(0).intersectsNode(region))
      || all("input, textarea, select", region).some(changed)
      || all("details", region).some((each) => each.open !== sentOpen.get(each));
  };
  const root = find("[data-pgjobs-live]");
  const live = root && {
    seconds: Number(root.dataset.interval) || 0,
    paused: remembered("paused"), failures: 0, read: performance.now(), held: 0, ended: null, request: null, timer: 0,
    start() {
      if (!this.seconds) return;
      regions().forEach((region) => noteSent(region, region.innerHTML));
      document.addEventListener("visibilitychange", () => (document.hidden ? this.rest() : this.now()));
      document.addEventListener("click", (event) => {
        if (event.target.closest?.("[data-pgjobs-pause]")) this.pause(!this.paused);
      });
      setInterval(() => document.hidden || this.tell(), 1000);
      this.schedule();
    },
    rest() { clearTimeout(this.timer); this.request?.abort(); this.request = null; },
    schedule() {
      this.rest(); this.tell();
      if (this.paused || this.ended || document.hidden) return;
      const wait = Math.min(Math.max(60, this.seconds), this.seconds * 2 ** this.failures);
      this.timer = setTimeout(() => this.now(), wait * 1000);
    },
    pause(on) { this.paused = on; remember("paused", on); if (on) this.schedule(); else this.now(); },
    async now(asked = false) {
      if (this.ended || (this.paused && !asked)) return this.tell();
      this.rest();
      const request = this.request = new AbortController();
      setTimeout(() => request.abort(), Math.max(10, 2 * this.seconds) * 1000);
      try {
        const address = new URL(root.dataset.url || "?fragment=1", location.href);
        const answer = await fetch(address, { redirect: "manual", signal: request.signal });
        if (answer.type === "opaqueredirect" || answer.status === 401) this.ended = "signed out";
        else if ([403, 404, 410].includes(answer.status)) this.ended = `answer ${answer.status}`;
        else if (!answer.ok) throw new Error(`answer ${answer.status}`);
        else this.replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
      } catch {
        if (this.request !== request) return;  // let go on purpose: hidden, paused, or asked anew
        this.failures += 1;
      }
      if (this.request === request) this.schedule();
    },
    replace(page) {
      const fresh = new Map(all("[data-pgjobs-region]", page).map((each) => [each.dataset.pgjobsRegion, each]));
      if (!fresh.size) throw new Error("no regions: not the page that was asked for");
      let before = null;
      for (const [name, sent] of fresh) {  // a new one takes its place, empty until it is filled below
        const here = find(`[data-pgjobs-region="${name}"]`) ?? sent.cloneNode();
        if (!here.isConnected) { if (before) before.after(here); else root.append(here); }
        before = here;
      }
      this.held = 0;
      for (const old of regions()) {
        const sent = fresh.get(old.dataset.pgjobsRegion);
        const html = sent?.innerHTML ?? "";
        const same = sentHtml.get(old) === html;
        const held = !same && inUse(old);
        old.classList.toggle("pgjobs-held", held);
        this.held += held;
        if (same || held) continue;
        const scrolled = all(".pgjobs-scroll, pre", old).map((each) => [each.scrollLeft, each.scrollTop]);
        old.replaceChildren(...(sent ? document.adoptNode(sent).childNodes : []));
        all(".pgjobs-scroll, pre", old).forEach((each, at) => each.scrollTo(...(scrolled[at] ?? [0, 0])));
        noteSent(old, html);
      }
      Object.assign(this, { failures: 0, read: performance.now() });
      if (find("[data-pgjobs-live]", page)?.dataset.interval === "0") this.ended = "complete";
    },
    tell() {
      const age = `${Math.round((performance.now() - this.read) / 1000)} s`;
      const late = this.failures > 0 || parseInt(age) > 3 * this.seconds;
      const held = this.held ? `; ${this.held} ${this.held === 1 ? "part" : "parts"} in use and left alone` : "";
      const [kind, before, quiet, after] =
        this.ended === "signed out" ? ["ended", "Session ended; data is ", age, " old. "]
        : this.ended === "complete" ? ["complete", "Complete; no further updates", "", ""]
        : this.ended ? ["ended", `The server refuses this page (${this.ended}); data is `, age, " old"]
        : this.paused ? ["paused", "Paused; data is ", age, " old"]
        : late ? ["late", "Data is ", age, " old; retrying"]
        : ["live", `Live, every ${this.seconds} s`, held, ""];
      root.classList.toggle("pgjobs-late", kind === "late" || kind === "ended");
      for (const button of all("[data-pgjobs-pause]")) button.setAttribute("aria-pressed", String(this.paused));
      const status = find("[data-pgjobs-status]");
      if (!status) return;
      if (status.dataset.kind === kind) {  // an age or a count changed: shown, not announced
        find("span", status).textContent = quiet;
        return;
      }
      status.dataset.kind = kind;
      status.replaceChildren(before, make("span", quiet, { "aria-hidden": "true" }), after);
      if (this.ended === "signed out") status.append(make("a", "Sign in", { href: location.href }));
    },
  };
  live?.start();

  // --- Copy buttons.
  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.("[data-pgjobs-copy]");
    if (!button) return;
    let done = true, label = button.dataset.label ??= button.textContent;
    try {
      await navigator.clipboard.writeText(button.dataset.pgjobsCopy);
    } catch {  // no clipboard without https: by way of a selection
      const field = make("textarea", button.dataset.pgjobsCopy, { readonly: "" });
      button.before(field);
      field.select();
      done = document.execCommand("copy");
      field.remove();
    }
    if (event.detail) button.blur(); else button.focus();  // by mouse: the focus would hold the region
    button.textContent = done ? "Copied" : "Not copied";
    setTimeout(() => { button.textContent = label; }, 2000);
  });

  // --- Keyboard shortcuts: single keys, never while a field has the focus, and a person may turn them off.
  const PLACES = {
    o: ["Overview", "overview"], e: ["Errors", "errorgroup"], r: ["Running", "runningjob"], j: ["Jobs", "job"],
    q: ["Queues", "queue"], w: ["Workers", "worker"], f: ["Workflows", "execution"], a: ["Approvals", "wait"],
    d: ["Dead", "deadjob"], t: ["Tasks", "tasktype"], l: ["Activity", "activity"], b: ["Bulk", "bulkoperation"],
    u: ["Audit", "operatoraction"], s: ["System", "system"],
  };
  const placeOf = (key) => PLACES[key] && find(`a[href$="/pgjobs/${PLACES[key][1]}/"]`);
  const rows = () => all("#result_list tbody tr, table.pgjobs-table tbody tr").filter((row) => find("a, input", row));
  const step = (by) => {
    const list = rows(), at = list.findIndex((row) => row.contains(document.activeElement));
    const row = list[at < 0 ? (by > 0 ? 0 : list.length - 1) : Math.min(Math.max(at + by, 0), list.length - 1)];
    if (row) (find("a", row) ?? find("input", row)).focus();
  };
  const KEYS = {
    "?": ["this list", () => help.showModal()],
    "/": ["search", () => find("#searchbar, [type=search]")?.focus()],
    r: ["refresh", () => (find("[data-pgjobs-status]") && !live.ended ? live.now(true) : location.reload())],
    p: ["pause or resume the refresh", () => live?.seconds && live.pause(!live.paused)],
    j: ["next row", () => step(1)],
    k: ["previous row", () => step(-1)],
    x: ["tick the row", () => document.activeElement.closest("tr")?.querySelector("[type=checkbox]")?.click()],
  };
  const help = make("dialog", "", { class: "pgjobs-help", "aria-labelledby": "pgjobs-help-title" });
  const list = make("dl", "");
  const tell = (key, text) => list.append(make("dt", key), make("dd", text));
  Object.entries(KEYS).forEach(([key, [text]]) => tell(key, text));
  tell("Enter", "open the row");
  Object.entries(PLACES).forEach(([key, [name]]) => placeOf(key) && tell(`g ${key}`, name));
  const label = make("label", " Single-key shortcuts are on");
  const toggle = make("input", "", { type: "checkbox" });
  label.prepend(toggle);
  toggle.checked = !remembered("keys-off");
  toggle.addEventListener("change", () => remember("keys-off", !toggle.checked));
  const close = make("button", "Close", { class: "button" });
  const form = make("form", "", { method: "dialog" });
  form.append(make("h2", "Keyboard shortcuts", { id: "pgjobs-help-title" }), list, label, close);
  help.append(form);
  document.body.append(help);
  const opener = make("button", "Shortcuts", { type: "button", class: "pgjobs-keys", "aria-keyshortcuts": "?" });
  opener.addEventListener("click", () => help.showModal());
  (find('nav[aria-label="pgjobs"]') ?? find("#footer") ?? document.body).append(opener);
  const FIELDS = "input:not([type=checkbox], [type=radio], [type=submit]), textarea, select, [contenteditable]";
  let prefixed = -Infinity;
  document.addEventListener("keydown", (event) => {
    if (help.open || !toggle.checked || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest?.(FIELDS)) return;
    const afterG = event.timeStamp - prefixed < 1500;
    prefixed = event.key === "g" && !afterG ? event.timeStamp : -Infinity;
    const act = afterG ? placeOf(event.key) && (() => location.assign(placeOf(event.key))) : KEYS[event.key]?.[1];
    if (act) { event.preventDefault(); act(); }
  });
});
