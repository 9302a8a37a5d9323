"use strict";
// Filters, search and order of the table of runs.
document.addEventListener("DOMContentLoaded", () => {
  const byId = (id) => document.getElementById(id);
  const body = document.querySelector("#runs tbody");
  const rows = [...body.rows];
  const names = ["kind", "ending", "mode"];
  const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));

  const filter = () => {
    const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const denied = byId("by-denials").checked;
    let shown = 0;
    for (const row of rows) {
      const fits = names.every((name) => [undefined, "", row.dataset[name]].includes(byId(`by-${name}`)?.value));
      row.hidden = !(fits && (!denied || row.dataset.denials !== "0") && words.every((word) => texts.get(row).includes(word)));
      shown += !row.hidden;
    }
    byId("found").textContent = shown === rows.length ? `${shown} run${shown === 1 ? "" : "s"}` : `${shown} of ${rows.length} runs`;
  };
  for (const id of ["search", "by-denials", ...names.map((name) => `by-${name}`)]) byId(id).addEventListener("input", filter);

  const heads = [...document.querySelectorAll("#runs thead th")];
  const keyOf = (row, at) => {
    const cell = row.cells[at];
    return cell.dataset.value === undefined ? cell.textContent.toLowerCase() : Number(cell.dataset.value);
  };
  heads.forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      // numbers begin with the greatest, names with the first
      const first = head.classList.contains("num") ? "descending" : "ascending";
      const now = head.getAttribute("aria-sort");
      const way = now === null ? first : now === "ascending" ? "descending" : "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", way);
      const sign = way === "ascending" ? 1 : -1;
      const sorted = rows.map((row, place) => ({ row, place, key: keyOf(row, at) }))
        .sort((a, b) => sign * (a.key < b.key ? -1 : a.key > b.key ? 1 : 0) || a.place - b.place);
      body.append(...sorted.map((item) => item.row));
    });
  });
});
