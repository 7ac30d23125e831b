// The plan of a lesson, before it begins: what is new, known already, corrected or doubtful.

import { dialog, h, list, plural } from "./dom.js";

// Resolves with the options to begin with, or null.
export async function confirmPlan(session) {
  const plan = await session.api.plan({ force: true }); // with its doubts, which would be refused otherwise
  const doubt = plan.doubtful.join(" ");
  const quick = (session.model.learner ?? "anchored") === "anchored";
  const total = Object.values(plan.learn).reduce((sum, n) => sum + n, 0);
  if (!total) {
    await dialog("There is nothing new to learn", [h("p", {}, "All these photos were taught before, as the same classes.")], [{ value: "", text: "Close", kind: "primary", focus: true }]);
    return null;
  }
  const answer = await dialog("The next lesson", [summary(plan, total), table(plan, session), remarks(plan, doubt)], [
    { value: "", text: "Not yet", kind: "quiet" },
    { value: "begin", text: doubt ? "Teach it anyway" : "Start the lesson", kind: "primary", focus: true },
  ]);
  return answer ? { quick, force: Boolean(doubt) } : null;
}

function summary(plan, total) {
  const facts = [`${plural(total, "photo")} to learn`];
  if (plan.new_classes.length) facts.push(`${plural(plan.new_classes.length, "new class", "new classes")}: ${list(plan.new_classes.slice(0, 8))}${plan.new_classes.length > 8 ? " …" : ""}`);
  if (plan.known_already) facts.push(`${plural(plan.known_already, "photo is", "photos are")} known already and will be skipped`);
  if (plan.corrected) facts.push(`${plural(plan.corrected, "correction")}: taught before as another class`);
  if (plan.repeats) facts.push(`${plural(plan.repeats, "photo")} twice among them`);
  return h("ul", { class: "facts" }, facts.map((fact) => h("li", {}, fact)));
}

function table(plan, session) {
  const taught = new Map(session.model.classes.map(({ name, taught }) => [name, taught]));
  return h("div", { class: "scroll-x plan-table" }, h("table", {},
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Class"), h("th", { scope: "col", class: "number" }, "Photos now"), h("th", { scope: "col", class: "number" }, "Taught before"))),
    h("tbody", {}, Object.entries(plan.learn).map(([name, n]) => h("tr", {},
      h("th", { scope: "row" }, name, " ", !taught.has(name) && h("span", { class: "tag new" }, "new")),
      h("td", { class: "number" }, String(n)),
      h("td", { class: "number" }, String(taught.get(name) ?? 0)))))));
}

function remarks(plan, doubt) {
  const few = Object.entries(plan.learn).filter(([name, n]) => n < 5 && plan.new_classes.includes(name)).map(([name]) => name);
  const sentences = [...plan.notes, ...plan.skipped];
  if (few.length) sentences.push(`${list(few)}: fewer than five photos. It will work, but not as well.`);
  return h("div", { class: "stack" },
    doubt && h("p", { class: "banner warn" }, h("span", {}, h("strong", {}, "Is that meant? "), doubt)),
    sentences.map((sentence) => h("p", { class: "soft small" }, sentence)));
}
