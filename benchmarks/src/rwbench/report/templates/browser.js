"use strict";
// The sample browser: parts are raw-deflated JSON in base64, unpacked when a run is chosen. All text is set as text.
(() => {
  const form = document.getElementById("browse");
  if (!form) return;
  const at = (id) => document.getElementById(id);
  const PAGE = 25;
  const opened = new Map();
  let samples = [], found = [], page = 0, questions = {}, rules = {}, world = "";

  const unpack = (name) => {
    if (!opened.has(name)) opened.set(name, (async () => {
      const raw = Uint8Array.from(atob(at("part-" + name).textContent), (c) => c.charCodeAt(0));
      const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
      return JSON.parse(await new Response(stream).text());
    })());
    return opened.get(name);
  };
  const make = (tag, css, text, ...children) => {
    const node = document.createElement(tag);
    if (css) node.className = css;
    if (text !== null && text !== undefined) node.textContent = text;
    node.append(...children);
    return node;
  };
  const share = (value) => value === undefined || value === null ? "–" : `${(100 * value).toFixed(value % 1 ? 1 : 0)} %`;
  const verdict = (s) => s.failure !== null ? "failed" : s.error_class || (s.score === 1 ? "all found" : "some missed");
  const words = (name) => name.replaceAll("_", " ");
  const rule = (id) => rules[`${world}/${id}`];

  const ruleItem = (id, place, gold) => {
    const text = rule(id);
    const item = make("li", gold ? "gold" : "", null);
    item.value = place;
    item.append(make("code", "", text ? text[0] : `rule ${id}`), make("span", "meta", text ? ` ${text[1]} (${id})` : ""));
    if (gold) item.append(make("b", "tag", "gold"));
    return item;
  };

  const detail = (s) => {
    const box = make("div", "sample", null);
    const q = questions[s.question];
    world = s.question.includes("/") ? s.question.split("/")[0] : "";
    const facts = make("dl", "pairs", null);
    const pair = (name, value) => facts.append(make("dt", "", name), make("dd", "", value));
    if (s.answers !== null) pair("Answer", s.answers.length ? s.answers.join(", ") : "(none)");
    pair("Gold answer", s.gold.join(", "));
    pair("Result", [verdict(s), ...Object.entries(s.scores).filter(([n]) => !n.startsWith("expected"))
      .map(([n, v]) => `${words(n)} ${share(v)}`)].map(words).join(" · "));
    if (s.outcome !== "ok") pair("Outcome", words(s.outcome));
    if (s.failure !== null) pair("Error", s.failure);
    box.append(facts);
    if (s.output !== null) box.append(make("h4", "", "Output"), make("pre", "", s.output));
    box.append(make("h4", "", "Gold proof"));
    const proof = make("ol", "", null);
    if (q) for (const step of q.steps) proof.append(make("li", "", step.nl, make("div", "", null,
      make("code", "", step.fol), make("span", "meta", ` rules ${step.rules.join(", ")}`))));
    else for (const step of s.rules) proof.append(make("li", "", `rules ${step.join(", ")}`));
    box.append(proof);
    const all = new Set(s.rules.flat());
    (s.searches || []).forEach((search, number) => {
      const places = Object.entries(search.gold).map(([id, place]) => `${id} at ${place}`).join(", ");
      box.append(make("h4", "", s.searches.length > 1 ? `Search ${number + 1}` : "Rules found"));
      const list = make("ol", "rules", null);
      search.top.forEach((id, place) => id >= 0 && list.append(ruleItem(id, place + 1, all.has(id))));
      box.append(list, make("p", "meta", `${search.more ? `and ${search.more} more; ` : ""}gold rules: ${places || "none found"}`));
    });
    return box;
  };

  const draw = () => {
    const list = at("b-list");
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    page = Math.min(Math.max(page, 0), pages - 1);
    list.replaceChildren(...found.slice(page * PAGE, page * PAGE + PAGE).map((s) => {
      const q = questions[s.question];
      const line = make("summary", "", null, make("b", "tag " + (s.score === 1 ? "good" : "bad"), words(verdict(s))),
        make("span", "meta", ` ${words(s.subtask)} · ${share(s.score)} `), make("span", "", q ? q.text : s.id));
      const entry = make("details", "", null, line);
      entry.addEventListener("toggle", () => { if (entry.open && entry.children.length === 1) entry.append(detail(s)); });
      return make("li", "", null, entry);
    }));
    list.start = page * PAGE + 1;
    at("b-count").textContent = `${found.length.toLocaleString("en")} of ${samples.length.toLocaleString("en")} samples`;
    at("b-page").textContent = `page ${page + 1} of ${pages}`;
    at("b-back").disabled = page === 0;
    at("b-next").disabled = page === pages - 1;
  };
  const haystack = (s) => s.hay ??= [s.id, questions[s.question]?.text, s.output, ...(s.answers || []), ...s.gold,
    ...s.rules.flat().map((id) => "rule " + id)].join(" ").toLowerCase();
  const filter = () => {
    const [subtask, result, text] = ["b-subtask", "b-result", "b-text"].map((id) => at(id).value);
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    found = samples.filter((s) => (!subtask || s.subtask === subtask) && (!result || verdict(s) === result)
      && words.every((word) => haystack(s).includes(word)));
    page = 0;
    draw();
  };
  const choices = (id, values) => {
    const kept = at(id).value;
    at(id).replaceChildren(new Option("all", ""), ...values.map((v) => new Option(words(v), v)));
    if (values.includes(kept)) at(id).value = kept;
  };
  const open = async () => {
    at("b-count").textContent = "opening …";
    try {
      [questions, rules, samples] = await Promise.all(["questions", "rules", "run-" + at("b-run").value].map(unpack));
    } catch (problem) {
      at("b-count").textContent = `This browser cannot open the samples (${problem.message}); they are in samples.jsonl.`;
      return;
    }
    choices("b-subtask", [...new Set(samples.map((s) => s.subtask))]);
    choices("b-result", [...new Set(samples.map(verdict))].sort());
    filter();
  };
  form.addEventListener("submit", (event) => event.preventDefault());
  at("b-run").addEventListener("change", open);
  for (const id of ["b-subtask", "b-result"]) at(id).addEventListener("change", filter);
  let wait;
  at("b-text").addEventListener("input", () => { clearTimeout(wait); wait = setTimeout(filter, 150); });
  at("b-back").addEventListener("click", () => { page -= 1; draw(); });
  at("b-next").addEventListener("click", () => { page += 1; draw(); });
  // Unpacked only when the section comes into view: a page that is only read stays light.
  new IntersectionObserver((entries, seen) => {
    if (entries.some((entry) => entry.isIntersecting)) { seen.disconnect(); open(); }
  }, { rootMargin: "400px" }).observe(at("samples"));
})();
