// Keeps a visible page up to date, and adds keyboard shortcuts. All pages work without it.
"use strict";
(() => {
  const main = document.getElementById("main");
  const state = document.getElementById("state");
  const every = Number(document.body.dataset.refresh);
  const slowest = 30_000;

  // say shows how fresh the page is.
  const say = (name, text) => {
    if (state.dataset.state === name && state.textContent === text) return;
    state.dataset.state = name;
    state.textContent = text;
  };
  // fresh shows that the page is up to date, unless its banner says that Redis is away.
  const fresh = () => main.querySelector(".banner") ? say("lost", "Redis away") : say("live", "live");
  const clock = () => new Date().toLocaleTimeString([], { hour12: false });

  // morph replaces the content, and keeps what the user has ticked, typed, opened or focused.
  const morph = (html) => {
    const old = new Map();
    for (const cell of main.querySelectorAll("tr[id] td.n, .figures dd")) old.set(place(cell), cell.textContent);
    Idiomorph.morph(main, html, {
      morphStyle: "innerHTML",
      callbacks: {
        beforeNodeMorphed(from, to) {
          if (from.nodeType !== 1) return true;
          if (from.matches("details")) to.open = from.open;
          if (from.matches("input[type=checkbox]")) to.toggleAttribute("checked", from.checked);
          else if (from.matches("input:not([type=hidden])")) to.setAttribute("value", from.value);
          return true;
        },
        beforeNodeRemoved: (node) => !(node.nodeType === 1 && node.matches(".readout, .hair")),
      },
    });
    for (const cell of main.querySelectorAll("tr[id] td.n, .figures dd")) {
      const before = old.get(place(cell));
      if (before === undefined || before === cell.textContent || cell.querySelector("time")) continue;
      cell.classList.add("changed");
      cell.addEventListener("animationend", () => cell.classList.remove("changed"), { once: true });
    }
  };
  const place = (cell) => {
    const row = cell.closest("tr");
    return row ? row.id + " " + cell.cellIndex : "figure " + cell.previousElementSibling?.textContent.replace(/[\d.,]+/g, "");
  };

  // Poll only while the page is visible, one request at a time, less often after errors.
  let etag = "", timer = 0, pause = every, frozen = false, asking = null, seen = clock();
  const plan = (ms) => { clearTimeout(timer); if (every > 0 && !frozen && !document.hidden) timer = setTimeout(poll, ms); };
  const poll = async () => {
    if (document.hidden || frozen || asking || searching) return;
    asking = new AbortController();
    const late = setTimeout(() => asking.abort(), 5000);
    try {
      const answer = await fetch(location.href, {
        headers: { Fragment: "1", ...(etag && { "If-None-Match": etag }) }, signal: asking.signal, cache: "no-store", redirect: "error",
      });
      if (answer.status !== 304) {
        if (!answer.ok) throw new Error(String(answer.status));
        const html = await answer.text();
        if (!document.hidden && !frozen) { morph(html); etag = answer.headers.get("ETag") || ""; }
      }
      if (frozen) return; // meanwhile
      pause = every;
      seen = clock();
      fresh();
    } catch {
      pause = Math.min(slowest, pause * 2);
      if (!document.hidden && !frozen) say("lost", "no answer since " + seen);
    } finally {
      clearTimeout(late);
      asking = null;
      plan(pause);
    }
  };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { clearTimeout(timer); asking?.abort(); } else { pause = every; plan(0); }
  });
  const freeze = () => {
    frozen = !frozen;
    if (frozen) { clearTimeout(timer); say("frozen", "frozen at " + clock()); } else plan(0);
  };

  // A search continues until it has a page of hits or has read everything.
  let searching = false;
  const search = async () => {
    const next = document.getElementById("search-next");
    const hits = document.querySelectorAll("#hits tbody tr").length;
    if (!next || hits >= 50) { searching = false; say("frozen", "as of " + clock()); return; }
    searching = true;
    say("live", "searching");
    const stop = document.getElementById("search-stop");
    stop.hidden = false;
    stop.onclick = () => { searching = false; stop.hidden = true; };
    try {
      const answer = await fetch(next.href, { headers: { Fragment: "1" } });
      if (!answer.ok || !searching) throw new Error(String(answer.status));
      const step = new DOMParser().parseFromString(await answer.text(), "text/html");
      const rows = step.querySelectorAll("#hits tbody tr");
      const list = document.querySelector("#hits tbody");
      if (rows.length && !list) { morph(step.body.innerHTML); } else {
        list?.append(...rows);
        document.getElementById("search-progress")?.replaceWith(step.getElementById("search-progress") || "");
      }
      history.replaceState(null, "", next.href);
      search();
    } catch { searching = false; }
  };

  // The value under the pointer.
  const amount = (v, unit) => v == null ? "—" : unit === " s" && v > 0 && v < 1 ? `${Math.round(v * 1000)} ms` : v + unit;
  const read = (figure, x) => {
    const svg = figure.querySelector("svg.chart"), box = svg.getBoundingClientRect();
    const data = JSON.parse(figure.dataset.chart), n = Math.max(...data.series.map((s) => s.values.length));
    const i = Math.min(n - 1, Math.max(0, Math.floor((x - box.left) / box.width * n)));
    let hair = svg.querySelector(".hair");
    if (!hair) { hair = document.createElementNS(svg.namespaceURI, "line"); hair.setAttribute("class", "hair"); svg.append(hair); }
    const at = `${(i + 0.5) / n * 100}%`;
    for (const [k, v] of [["x1", at], ["x2", at], ["y1", "10"], ["y2", "160"]]) hair.setAttribute(k, v);
    let out = figure.querySelector(".readout");
    if (!out) { out = document.createElement("div"); out.className = "readout"; figure.append(out); }
    const time = new Date(data.from + i * data.step).toLocaleTimeString([], { hour12: false });
    out.textContent = [time, ...data.series.map((s) => `${s.name} ${amount(s.values[i], data.unit)}`)].join(" · ");
  };
  main.addEventListener("pointermove", (e) => { const f = e.target.closest?.(".plot"); if (f) read(f, e.clientX); });
  main.addEventListener("pointerout", (e) => { const f = e.target.closest?.(".plot"); if (f && !f.contains(e.relatedTarget)) for (const x of f.querySelectorAll(".hair, .readout")) x.remove(); });

  // Light and dark.
  const dark = () => {
    const set = document.documentElement.dataset.theme;
    return set ? set === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  };
  const turn = () => {
    const theme = dark() ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    try { localStorage.setItem("theme", theme); } catch { /* for this page only */ }
  };
  const themeButton = document.getElementById("theme"), helpButton = document.getElementById("help");
  themeButton.hidden = helpButton.hidden = false;
  themeButton.addEventListener("click", turn);
  const store = document.getElementById("store");
  if (store) {
    const shown = store.value;
    store.addEventListener("change", () => store.form.requestSubmit());
    // Returning by the browser's history shows the page's own store, not the one that was chosen.
    addEventListener("pageshow", () => { store.value = shown; });
  }
  const keys = document.getElementById("keys");
  helpButton.addEventListener("click", () => keys.showModal());

  // Keys.
  let going = false;
  document.documentElement.classList.add("js"); // which shows the boxes that pick all
  main.addEventListener("change", (e) => {
    if (!e.target.matches("th.tick input")) return;
    for (const box of e.target.closest("table").querySelectorAll("td.tick input")) box.checked = e.target.checked;
  });

  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input, textarea, select, dialog")) return;
    const follow = going && document.querySelector(`#views a[data-key="${CSS.escape(e.key)}"]`);
    going = e.key === "g";
    if (follow) { follow.click(); return; }
    if (e.key === "t") turn();
    else if (e.key === "r") freeze();
    else if (e.key === "?") keys.showModal();
    else if (e.key === "/") {
      const field = document.querySelector("form[role=search] input[type=search]") || document.querySelector("form[role=search] input");
      if (field) { e.preventDefault(); field.focus(); field.select(); }
    }
  });

  if (document.getElementById("search-next")) search();
  else if (every > 0) { fresh(); plan(every); }
})();
