// Charts as SVG: accuracy over lessons, a reliability diagram, a confusion matrix.

import { percent, plural, svg } from "./dom.js";

const HEIGHT = 220;
const LEFT = 44;
const BOTTOM = 28;
const TOP = 10;

function frame(width, label, interactive = false) {
  return svg("svg", { class: "chart", viewBox: `0 0 ${width} ${HEIGHT}`, role: interactive ? "group" : "img", "aria-label": label });
}

const yOf = (share) => TOP + (1 - share) * (HEIGHT - TOP - BOTTOM);

function shareAxis(chart, width) {
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    chart.append(
      svg("line", { class: "axis", x1: LEFT, x2: width - 8, y1: yOf(share), y2: yOf(share) }),
      svg("text", { x: LEFT - 8, y: yOf(share) + 4, "text-anchor": "end" }, percent(share)));
  }
}

// points: [{name, accuracy, note}], oldest first
export function accuracyChart(points) {
  const width = matchMedia("(max-width: 700px)").matches ? 320 : 640; // or the words would be too small
  const spoken = points.map((point) => `${point.name}: ${percent(point.accuracy)}`).join(", ");
  const chart = frame(width, `Accuracy on held-out photos over the lessons. ${spoken}`);
  shareAxis(chart, width);
  const room = width - LEFT - 56;
  const xOf = (i) => LEFT + 24 + (points.length < 2 ? room / 2 : (i * room) / (points.length - 1));
  const line = points.map((point, i) => `${i ? "L" : "M"}${xOf(i)} ${yOf(point.accuracy)}`).join(" ");
  chart.append(svg("path", { class: "curve", d: line }));
  const every = Math.ceil((points.length * 64) / width);
  points.forEach((point, i) => {
    chart.append(svg("circle", { class: "dot", cx: xOf(i), cy: yOf(point.accuracy), r: 5.5 }, svg("title", {}, `${point.name}: ${percent(point.accuracy)}${point.note ? `, ${point.note}` : ""}`)));
    if (i % every === 0) chart.append(svg("text", { x: xOf(i), y: HEIGHT - 8, "text-anchor": "middle" }, point.name));
  });
  return chart;
}

// bins: [{confidence, accuracy, count}]
export function reliabilityChart(bins) {
  const width = 320;
  const filled = bins.filter((bin) => bin.count);
  const spoken = filled.map((bin) => `said ${percent(bin.confidence)}, right ${percent(bin.accuracy)} of ${bin.count}`).join("; ");
  const chart = frame(width, `How often answers of a given probability are right. ${spoken}`);
  shareAxis(chart, width);
  const xOf = (share) => LEFT + share * (width - LEFT - 16);
  chart.append(svg("line", { class: "ideal", x1: xOf(0), x2: xOf(1), y1: yOf(0), y2: yOf(1) }));
  const most = Math.max(...filled.map((bin) => bin.count));
  for (const bin of filled) {
    chart.append(svg("circle", { class: "dot", cx: xOf(bin.confidence), cy: yOf(bin.accuracy), r: 4 + 7 * Math.sqrt(bin.count / most) },
      svg("title", {}, `${plural(bin.count, "photo")}: said ${percent(bin.confidence)} on average, right ${percent(bin.accuracy)}`)));
  }
  for (const share of [0, 0.5, 1]) chart.append(svg("text", { x: xOf(share), y: HEIGHT - 8, "text-anchor": ["start", "middle", "end"][share * 2] }, `${percent(share)} sure`));
  return chart;
}

// matrix[i][j]: photos of class i answered as class j; picked(i, j) if a cell is chosen
export function confusionMatrix(names, matrix, picked) {
  const cell = names.length > 12 ? 24 : names.length > 6 ? 40 : 56;
  const margin = 20 + 7.5 * Math.max(...names.map((name) => shortened(name).length)); // room for the names
  const side = names.length * cell;
  const chart = svg("svg", { class: "chart matrix", viewBox: `0 0 ${margin + side + 8} ${side + margin}`, role: "group", "aria-label": "Confusion matrix: rows are the true classes, columns the answers" });
  chart.style.maxWidth = `${margin + side + 8}px`;
  chart.style.minWidth = `${Math.min(margin + side + 8, 300)}px`;
  names.forEach((name, i) => {
    const total = matrix[i].reduce((sum, n) => sum + n, 0);
    chart.append(svg("text", { x: margin - 8, y: i * cell + cell / 2 + 4, "text-anchor": "end" }, shortened(name)));
    const x = margin + i * cell + cell / 2;
    chart.append(svg("text", { x, y: side + 12, transform: `rotate(-45 ${x} ${side + 12})`, "text-anchor": "end" }, shortened(name)));
    matrix[i].forEach((n, j) => {
      const said = `${n} of ${plural(total, "photo")} of ${name} answered as ${names[j]}`;
      const box = svg("rect", { class: i === j ? "cell right" : "cell wrong", x: margin + j * cell, y: i * cell, width: cell, height: cell, rx: 5 }, svg("title", {}, said));
      box.style.fillOpacity = n ? String(0.25 + (0.75 * n) / total) : "0";
      const background = svg("rect", { class: "cell back", x: margin + j * cell, y: i * cell, width: cell, height: cell, rx: 5 });
      if (n && picked) {
        const choose = () => picked(i, j);
        for (const [key, value] of Object.entries({ role: "button", tabindex: "0", "aria-label": said })) box.setAttribute(key, value);
        box.addEventListener("click", choose);
        box.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); } });
      }
      chart.append(background, box);
      if (n && cell > 24) chart.append(svg("text", { class: n / total > 0.6 ? "count strong" : "count", x: margin + j * cell + cell / 2, y: i * cell + cell / 2 + 4, "text-anchor": "middle" }, String(n)));
    });
  });
  return chart;
}

const shortened = (name) => (name.length > 15 ? `${name.slice(0, 14)}…` : name);
