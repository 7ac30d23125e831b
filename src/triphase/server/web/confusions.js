// Which classes are confused on held-out photos, and how often answers of a given probability are right.

import { confusionMatrix, reliabilityChart } from "./charts.js";
import { move } from "./corrections.js";
import { dialog, h, percent, picture, plural, replace } from "./dom.js";
import { heading } from "./heading.js";

const SHOWN = 20; // classes in the matrix: those that are confused most

export async function showConfusions(session, place) {
  const report = await session.api.heldOut();
  if (!report.accuracy) {
    replace(place, heading("Confusions", "No held-out photos yet: from about five photos of a class on, some are kept aside to measure with."));
    return;
  }
  const chosen = mostConfused(report.matrix);
  const matrix = chosen.map((i) => chosen.map((j) => report.matrix[i][j]));
  const names = chosen.map((i) => report.classes[i]);
  const total = report.accuracy;
  if (session.confusion) openWanted(session, report);
  replace(place,
    heading("Confusions", `${percent(total.value)} of ${plural(total.n, "held-out photo")} are right (${percent(total.low)} to ${percent(total.high)}). Rows are what they show, columns what is answered.`),
    h("div", { class: "chart-columns" },
      h("div", { class: "scroll-x" }, confusionMatrix(names, matrix, (i, j) => open(session, report, names[i], names[j], matrix[i][j])),
        chosen.length < report.classes.length && h("p", { class: "soft small" }, `The ${chosen.length} classes that are confused most, of ${report.classes.length}.`)),
      h("figure", { class: "reliability" }, h("h3", {}, "When it says it is sure"), reliabilityChart(report.reliability.map((bin) => ({ confidence: bin.probability, accuracy: bin.accuracy?.value, count: bin.accuracy?.n ?? 0 }))),
        h("figcaption", { class: "soft small" }, "Each dot is a group of held-out photos: how sure it was, and how many were right. On the dashed line it is exactly as good as it says."))));
}

// Open the pair of classes that was clicked in the outcome of a lesson.
function openWanted(session, report) {
  const { label, answer } = session.confusion;
  session.confusion = null;
  const [i, j] = [label, answer].map((name) => report.classes.indexOf(name));
  if (i >= 0 && j >= 0) open(session, report, label, answer, report.matrix[i][j]);
}

function mostConfused(matrix) {
  const wrong = matrix.map((row, i) => matrix.reduce((sum, other, j) => sum + (i === j ? 0 : row[j] + other[i]), 0));
  const order = matrix.map((_, i) => i).sort((a, b) => wrong[b] - wrong[a]).slice(0, SHOWN);
  return order.sort((a, b) => a - b);
}

async function open(session, report, label, answer, n) {
  const found = report.confusions.find((pair) => pair.label === label && pair.taken_for === answer);
  const pictures = (found?.photos ?? []).map((id) => session.api.thumbnail(id));
  const sentence = label === answer
    ? `${plural(n, "held-out photo")} of ${label} recognised.`
    : `${plural(n, "held-out photo")} of ${label} answered as ${answer}. If their label is right, more photos of both help most; if they do show ${answer}, move them.`;
  const chosen = await dialog(label === answer ? label : `${label} taken for ${answer}`, [
    h("p", {}, sentence),
    pictures.length > 0 && h("div", { class: "thumbs" }, pictures.map((url) => h("span", { class: "thumb" }, picture(url, `Held-out photo of ${label}`)))),
  ], [
    ...(found ? [{ value: "move", text: `They show ${answer}: move them` }] : []),
    { value: "", text: "Close", kind: "primary", focus: true },
  ]);
  if (chosen === "move") await move(session, found.photos.map((key) => ({ key })), answer);
}
