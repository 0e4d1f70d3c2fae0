"use strict";
// Sort by a column's head (or the list on phones), filter with the lists and the search above the table. What is
// chosen is kept in the address, so that a view can be shared.
for (const section of document.querySelectorAll("main section[id]")) {
  const table = section.querySelector("table");
  if (!table) continue;
  const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
  const filters = [...section.querySelectorAll("select[data-column]")];
  const order = section.querySelector("select[data-order]");
  const search = section.querySelector("input"), count = section.querySelector(".count");
  const missing = (value) => value === "" || value === null;
  const keys = heads.map((head, column) => rows.map((row) => {
    const cell = row.cells[column], text = cell.dataset.sort;
    if (text === undefined) return (cell.querySelector("summary") ?? cell).textContent.trim().toLowerCase();
    return text === "" ? "" : Number(text);
  }));
  const place = new Map(rows.map((row, number) => [row, number]));
  let chosen = "";

  const sort = () => {
    const [name, way] = chosen.split("_"), column = Number(name), sign = way === "up" ? 1 : -1;
    heads.forEach((head, number) => {
      if (chosen && number === column) head.setAttribute("aria-sort", way === "up" ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
    const key = (row) => keys[column][place.get(row)];
    const compare = (a, b) => {
      if (!chosen) return place.get(a) - place.get(b);
      const x = key(a), y = key(b);
      // Missing figures stay at the end, whichever way.
      if (missing(x) || missing(y)) return missing(x) - missing(y) || place.get(a) - place.get(b);
      return sign * (x < y ? -1 : x > y ? 1 : 0) || place.get(a) - place.get(b);
    };
    body.append(...[...rows].sort(compare));
    table.classList.toggle("sorted", Boolean(chosen));
    if (order) order.value = chosen;
  };
  const filter = () => {
    const wanted = search.value.trim().toLowerCase();
    let shown = 0;
    for (const row of rows) {
      row.hidden = filters.some((f) => f.value && !row.dataset[f.dataset.column].split("|").includes(f.value))
        || !row.dataset.words.includes(wanted);
      shown += !row.hidden;
    }
    count.textContent = `${shown} of ${rows.length}`;
  };
  const keep = () => {
    const state = new URLSearchParams(location.hash.slice(1));
    const put = (name, value) => (value ? state.set(`${section.id}.${name}`, value) : state.delete(`${section.id}.${name}`));
    filters.forEach((f) => put(f.dataset.column, f.value));
    put("search", search.value);
    put("sort", chosen);
    history.replaceState(null, "", `#${state}`);
  };
  const choose = (value) => { chosen = value; sort(); keep(); };

  heads.forEach((head, column) => {
    const down = head.classList.contains("number") && !head.classList.contains("small") || head.classList.contains("late");
    // Numbers start with the largest, ranks and words with the first.
    const ways = down ? ["down", "up"] : ["up", "down"];
    head.querySelector("button").addEventListener("click", () =>
      choose(`${column}_${chosen === `${column}_${ways[0]}` ? ways[1] : ways[0]}`));
    for (const way of ways) {
      const option = new Option(`${head.textContent.trim()}, ${way === "up" ? "lowest" : "highest"} first`, `${column}_${way}`);
      order.append(option);
    }
  });
  order.addEventListener("change", () => choose(order.value));
  filters.forEach((f) => f.addEventListener("change", () => { filter(); keep(); }));
  search.addEventListener("input", () => { filter(); keep(); });

  const state = new URLSearchParams(location.hash.slice(1));
  filters.forEach((f) => { f.value = state.get(`${section.id}.${f.dataset.column}`) ?? ""; if (f.selectedIndex < 0) f.value = ""; });
  search.value = state.get(`${section.id}.search`) ?? "";
  const wish = state.get(`${section.id}.sort`) ?? "";
  if ([...order.options].some((option) => option.value === wish)) chosen = wish;
  sort();
  filter();
}
