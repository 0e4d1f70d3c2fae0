"use strict";
// Sort by clicking a column's head; filter with the selects above the table.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.sort === undefined ? cell.textContent.trim() : Number(cell.dataset.sort);
  };
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    // Numbers start with the largest, words with the first.
    const first = head.classList.contains("number") ? "descending" : "ascending";
    const other = first === "descending" ? "ascending" : "descending";
    const order = head.getAttribute("aria-sort") === first ? other : first;
    heads.forEach((cell) => cell.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    const rows = [...body.rows].sort((a, b) => sign * compare(value(a, column), value(b, column)));
    body.append(...rows);
  }));
  const filters = [...table.closest("section").querySelectorAll("select")];
  const apply = () => {
    for (const row of body.rows) {
      row.hidden = filters.some((f) => f.value && row.dataset[f.dataset.column] !== f.value);
    }
  };
  filters.forEach((filter) => filter.addEventListener("change", apply));
}
