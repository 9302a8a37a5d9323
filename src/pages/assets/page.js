"use strict";
// The page says all it has to say without this: it adds keys, search, folding and the choice of light or dark.
(() => {
  const root = document.documentElement;
  root.dataset.js = "";
  const keep = (name, value) => { try { localStorage.setItem(name, value); } catch { /* a browser may refuse */ } };
  const kept = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
  if (["light", "dark"].includes(kept("tachograph-theme"))) root.dataset.theme = kept("tachograph-theme");

  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const turn = () => { root.dataset.theme = isDark() ? "light" : "dark"; keep("tachograph-theme", root.dataset.theme); };

  // what a long page leaves unread until it stands: markup of ours, as the server side escaped it
  const left = () => document.querySelectorAll(".group > noscript");
  const read = (group) => { group.parentElement.innerHTML = group.textContent; };
  const readAll = () => left().forEach(read);
  const readOn = () => {
    const next = left()[0];
    if (next) { read(next); later(readOn); }
  };
  const later = (act) => (window.requestIdleCallback || setTimeout)(act);
  const byId = (id) => document.getElementById(id);

  const show = () => {
    let id = "";
    try { id = decodeURIComponent(location.hash.slice(1)); } catch { return; }
    if (!id) return;
    readAll();
    const call = /^tc_(\d+)_/.exec(id);
    const step = byId(call ? `step-${call[1]}` : id);
    if (step?.matches("details.step")) {
      step.hidden = false;
      step.open = true;
    }
    (byId(id) || step)?.scrollIntoView();
  };

  const start = () => {
    const list = document.querySelector(".steps");
    const steps = () => { readAll(); return [...list.querySelectorAll(":scope > .group > .step")]; };
    const rows = () => list ? steps().filter((step) => !step.hidden).map((step) => step.querySelector("summary, a"))
      : [...document.querySelectorAll("#runs tbody tr:not([hidden]) a")];
    const search = byId("search"), found = byId("found"), all = byId("all"), help = byId("help"), single = byId("single");

    // ---- folding
    const fold = () => {
      const there = steps();
      const open = !there.some((step) => step.open);
      for (const step of there) step.open = open;
      all.textContent = open ? "Fold all" : "Open all";
    };
    all?.addEventListener("click", fold);

    // ---- search: a step is shown where all the words stand in it
    const texts = new Map();
    const textOf = (step) => {
      if (!texts.has(step)) texts.set(step, step.textContent.toLowerCase());
      return texts.get(step);
    };
    const filter = () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const there = steps();
      let shown = 0;
      for (const step of there) {
        step.hidden = !words.every((word) => textOf(step).includes(word));
        shown += !step.hidden;
      }
      const all = `${there.length} step${there.length === 1 ? "" : "s"}`;
      found.textContent = words.length ? `${shown} of ${all}` : all;
    };
    if (list) search?.addEventListener("input", filter);

    // ---- keys
    if (single) {
      single.checked = kept("tachograph-keys") !== "off";
      single.addEventListener("change", () => keep("tachograph-keys", single.checked ? "on" : "off"));
    }
    const move = (by) => {
      const there = rows();
      const now = document.activeElement;
      let at = there.indexOf(now);
      if (at < 0) {
        const inside = there.findIndex((row) => row.closest("details, tr, section")?.contains(now));
        at = inside >= 0 ? inside : by > 0 ? -1 : there.length;
      }
      const next = there[at + by];
      next?.focus();
      next?.scrollIntoView({ block: "nearest" });
    };
    byId("theme")?.addEventListener("click", turn);
    byId("keys")?.addEventListener("click", () => help.showModal());
    byId("close")?.addEventListener("click", () => help.close());
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "Escape" && event.target === search) {
        search.value = "";
        search.dispatchEvent(new Event("input"));
        search.blur();
        return;
      }
      if (help?.open || event.target.matches?.("input, select, textarea") || single?.checked === false) return;
      const act = { j: () => move(1), k: () => move(-1), o: all && fold, t: turn, "/": search && (() => search.focus()), "?": help && (() => help.showModal()) }[event.key];
      const arrow = event.target.matches?.("summary") && { ArrowDown: () => move(1), ArrowUp: () => move(-1) }[event.key];
      const wanted = act || arrow;
      if (wanted) { event.preventDefault(); wanted(); }
    });
    addEventListener("hashchange", show);
    show();
    addEventListener("load", () => later(readOn));
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start); else start();
})();
