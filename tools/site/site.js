// The search, the theme, and what is added to headings and code. Without it all pages can be read.
"use strict";
const up = document.currentScript.dataset.up;

const stored = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
if (stored()) document.documentElement.dataset.theme = stored();

document.addEventListener("DOMContentLoaded", () => {
  theme();
  menu();
  headings();
  code();
  search();
});

function theme() {
  const button = document.querySelector(".theme");
  button.hidden = false;
  button.addEventListener("click", () => {
    const dark = document.documentElement.dataset.theme
      ? document.documentElement.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    const next = dark ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    try { localStorage.setItem("theme", next); } catch { /* it holds for this page */ }
  });
}

// The table of contents stands open where there is room for it.
function menu() {
  const menu = document.querySelector(".menu");
  const wide = matchMedia("(min-width: 801px)");
  const fit = () => { menu.open = wide.matches; };
  fit();
  wide.addEventListener("change", fit);
  const here = menu.querySelector("[aria-current]");
  if (wide.matches && here) {
    const nav = menu.closest("nav");
    if (here.offsetTop > nav.clientHeight - 80) nav.scrollTop = here.offsetTop - nav.clientHeight / 2;
  }
}

function headings() {
  const links = new Map([...document.querySelectorAll(".outline a")].map((a) => [a.hash.slice(1), a]));
  const seen = new IntersectionObserver((entries) => {
    for (const e of entries) {
      if (!e.isIntersecting) continue;
      links.forEach((a) => a.classList.remove("here"));
      links.get(e.target.id)?.classList.add("here");
    }
  }, { rootMargin: "-60px 0px -70% 0px" });
  for (const h of document.querySelectorAll("article :is(h2, h3, h4)[id]")) {
    const a = document.createElement("a");
    a.className = "anchor";
    a.href = "#" + h.id;
    a.textContent = "#";
    a.setAttribute("aria-label", "Link to this section");
    h.append(a);
    seen.observe(h);
  }
}

function code() {
  if (!navigator.clipboard) return;
  for (const pre of document.querySelectorAll("article pre")) {
    const b = document.createElement("button");
    b.type = "button";
    b.textContent = "Copy";
    b.addEventListener("click", async () => {
      await navigator.clipboard.writeText(pre.querySelector("code").textContent);
      b.textContent = "Copied";
      setTimeout(() => { b.textContent = "Copy"; }, 1500);
    });
    pre.append(b);
  }
}

function search() {
  const form = document.querySelector(".search");
  if (location.protocol === "file:") return; // there the index cannot be read
  form.hidden = false;
  const input = form.querySelector("input");
  const list = form.querySelector("ol");
  let index;
  const load = () => index ??= fetch(up + "search.json").then((r) => r.json()).then((all) => all.map((s) => (
    { ...s, title: s.t.toLowerCase(), page: s.p.toLowerCase(), text: s.x.toLowerCase() })));
  const close = () => { list.hidden = true; };
  input.addEventListener("focus", load);
  input.addEventListener("input", async () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return close();
    const all = await load();
    list.replaceChildren(...found(all, words).map((s) => item(s, words)));
    if (!list.children.length) {
      const none = document.createElement("li");
      none.className = "none";
      none.textContent = "Nothing found.";
      list.append(none);
    }
    list.hidden = false;
  });
  form.addEventListener("submit", (e) => {
    e.preventDefault();
    list.querySelector("a")?.click();
  });
  form.addEventListener("keydown", (e) => {
    if (e.key === "Escape") { close(); input.blur(); return; }
    const step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
    if (!step) return;
    e.preventDefault();
    const stops = [input, ...list.querySelectorAll("a")];
    stops[(stops.indexOf(document.activeElement) + step + stops.length) % stops.length].focus();
  });
  document.addEventListener("click", (e) => { if (!form.contains(e.target)) close(); });
  list.addEventListener("click", (e) => { if (e.target.closest("a")) close(); });
  document.addEventListener("keydown", (e) => {
    if (e.key !== "/" || e.ctrlKey || e.metaKey || e.target.closest("input, textarea")) return;
    e.preventDefault();
    input.focus();
  });
}

// found returns the sections that have all words, those first that have them in their titles.
function found(all, words) {
  const hits = [];
  for (const s of all) {
    let score = 0;
    for (const w of words) {
      const of = (s.title.includes(w) ? 8 : 0) + (s.title.split(/[^\p{L}\p{N}_]+/u).includes(w) ? 6 : 0) + (s.page.includes(w) ? 3 : 0) + (s.text.includes(w) ? 2 : 0);
      if (!of) { score = 0; break; }
      score += of;
    }
    if (score) hits.push({ s, score: score - Math.min(s.x.length / 20000, 1) - (s.u.startsWith("changelog") ? 6 : 0) });
  }
  return hits.sort((a, b) => b.score - a.score).slice(0, 20).map((h) => h.s);
}

function item(s, words) {
  const li = document.createElement("li");
  const a = document.createElement("a");
  a.href = up + s.u;
  const title = document.createElement("div");
  if (s.t !== s.p) {
    const where = document.createElement("span");
    where.className = "where";
    where.textContent = s.p + " › ";
    title.append(where);
  }
  title.append(...marked(s.t, words));
  const p = document.createElement("p");
  const at = Math.min(...words.map((w) => s.text.indexOf(w)).filter((i) => i >= 0), s.x.length);
  const from = Math.max(0, s.x.lastIndexOf(" ", Math.max(0, at - 40)));
  p.append(...marked((from ? "…" : "") + s.x.slice(from, from + 200), words));
  a.append(title, p);
  li.append(a);
  return li;
}

// marked returns a text as nodes, with the words marked.
function marked(text, words) {
  const escaped = words.map((w) => w.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return text.split(new RegExp("(" + escaped.join("|") + ")", "i")).map((part, i) => {
    if (i % 2 === 0) return part;
    const m = document.createElement("mark");
    m.textContent = part;
    return m;
  });
}
