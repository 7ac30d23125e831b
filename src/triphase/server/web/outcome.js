// The outcome of a lesson: change in accuracy per class, the guard's verdict, and confusions with new classes.

import { duration, h, list, percent, plural } from "./dom.js";
import { complain, toast } from "./toast.js";

export function outcomeView(outcome, session, close) {
  return h("div", { class: "panel outcome" },
    h("div", { class: "panel-head" },
      h("h2", {}, outcome.published ? `Learned. Version ${outcome.version} is in use` : "What the lesson would have done"),
      close && h("button", { type: "button", class: "quiet small-button", onclick: close }, "Close")),
    h("p", {}, verdict(outcome)),
    outcome.classes.length > 0 && changes(outcome),
    outcome.classes.length > 0 && h("p", { class: "soft small" }, "Held-out photos are kept aside and never learned from, so they show how good it is on photos that are new to it. ",
      outcome.verdict.n > 0 && "The change is counted on those that were held out before this lesson."),
    outcome.confused.length > 0 && confused(outcome.confused, session),
    outcome.notes.map((note) => h("p", { class: "soft small" }, note)),
    outcome.published && h("div", { class: "row" },
      h("a", { class: "button primary", href: "#try" }, "Try it"),
      !isFirst(outcome) && h("button", { type: "button", onclick: () => undo(session) }, "Take this lesson back"),
      h("span", { class: "soft small" }, `${plural(outcome.learned, "photo")} in ${duration(outcome.seconds)}`)));
}

// Before the first lesson there is no version to go back to.
const isFirst = ({ classes }) => classes.length > 0 && classes.every((entry) => entry.new);

export async function undo(session) {
  try {
    toast(`Version ${await session.undo()} is in use again.`);
  } catch (error) {
    complain(error);
  }
}

// The guard's verdict in a sentence.
export function verdict({ verdict: { n, before, after, refused, max_drop: maxDrop }, labels_mixed_up: mixedUp, classes, published }) {
  const photos = `Of ${plural(n, "held-out photo")} of the earlier classes`;
  const loss = () => `${photos} ${percent(after)} ${published ? "are" : "would be"} right, and ${percent(before)} ${published ? "were before" : "are now"}. That is a loss of more than ${percent(maxDrop)} with 95\u00a0% confidence.`;
  if (mixedUp) {
    const mixed = "The new photos are recognised hardly better than by guessing: their labels are probably mixed up.";
    return refused ? `${mixed} ${loss()}` : mixed;
  }
  if (!n) return isFirst({ classes }) ? "This was the first lesson, so there was nothing to forget." : "There are no held-out photos of the earlier classes yet, so forgetting could not be checked.";
  if (refused) return loss();
  const right = `${photos} ${percent(after)} are right`;
  if (after >= before) return `No loss was measured. ${right}; before the lesson it was ${percent(before)}.`;
  return `${right}; before the lesson it was ${percent(before)}. That need not be a loss of more than ${percent(maxDrop)}, so the guard agreed.`;
}

function changes({ classes, verdict: { per_class: perClass }, published }) {
  const first = isFirst({ classes });
  const compared = new Map(perClass.map((entry) => [classes[entry.label].name, entry])); // the same photos before and after
  const shown = classes.filter((entry) => entry.images > 0 || entry.before !== entry.after);
  const same = classes.length - shown.length;
  const columns = [
    [published ? "Learned" : "Photos", "number wide-only", (entry) => (entry.images ? `+ ${entry.images}` : "–")],
    ["Held out", "number wide-only", (entry) => String(entry.exemplars)],
    ...(first ? [] : [["Right before", "number", (entry) => percent(entry.before)]]),
    [published ? "Right now" : "Right after", "number", (entry) => percent(entry.after)],
    ...(first ? [] : [["Change", "", (entry) => change(compared.get(entry.name))]]),
  ];
  return h("div", { class: "scroll-x" }, h("table", { class: "changes" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Class"), columns.map(([title, kind]) => h("th", { scope: "col", class: kind }, title)))),
    h("tbody", {}, shown.map((entry) => h("tr", {},
      h("th", { scope: "row" }, entry.name, " ", entry.new && h("span", { class: "tag new" }, "new")),
      columns.map(([, kind, cell]) => h("td", { class: kind }, cell(entry))))))),
  same > 0 && h("p", { class: "soft small" }, `${plural(same, "other class", "other classes")} as before.`));
}

function change(compared) {
  if (!compared) return "";
  const { before, after, n } = compared;
  const photos = Math.round((after - before) * n);
  const outOf = h("span", { class: "wide-only" }, ` of ${n}`);
  if (photos > 0) return h("span", { class: "tag good" }, `gained ${photos}`, outOf);
  if (photos < 0) return h("span", { class: "tag bad" }, `lost ${-photos}`, outOf);
  return h("span", { class: "tag" }, "same");
}

// Rows: classes known before; columns: new classes that they are taken for.
function confused(pairs, session) {
  const rows = [...new Set(pairs.map(([name]) => name))].slice(0, 12);
  const columns = [...new Set(pairs.map(([, taken]) => taken))].slice(0, 8);
  const found = (row, column) => pairs.find(([name, taken]) => name === row && taken === column);
  const open = (row, column) => {
    session.confusion = { label: row, answer: column }; // Review opens it
    location.hash = "#review";
  };
  return h("div", { class: "stack" },
    h("h3", {}, "Taken for something new"),
    h("p", { class: "soft small" }, `Held-out photos of ${list(rows)} that are now answered as a new class. More photos of both help most.`),
    h("div", { class: "scroll-x" }, h("table", { class: "small-matrix" },
      h("thead", {}, h("tr", {}, h("td", {}), columns.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, h("th", { scope: "row" }, row), columns.map((column) => {
        const pair = found(row, column);
        return h("td", {}, pair && h("button", { type: "button", class: "small-button", "aria-label": `${pair[2]} of ${pair[3]} photos of ${row} taken for ${column}`, onclick: () => open(row, column) }, `${pair[2]} of ${pair[3]}`));
      })))))));
}
