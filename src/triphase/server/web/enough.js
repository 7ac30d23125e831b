// "Have I done enough?": for each class its accuracy with the interval, and what would help.

import { h, percent, replace, svg } from "./dom.js";
import { heading } from "./heading.js";

const STATUS = {
  good: ["good", "good enough"],
  unsure: ["", "too few to tell"],
  unmeasured: ["", "not measured"],
  confused: ["warn", "confused"],
  weak: ["bad", "weak"],
};
const ORDER = ["weak", "confused", "unmeasured", "unsure", "good"];

export async function showEnough(session, place) {
  const { classes } = await session.api.classAdvice();
  const sorted = classes.toSorted((a, b) => ORDER.indexOf(a.status) - ORDER.indexOf(b.status));
  replace(place,
    heading("Have I done enough?", "How often it recognises photos that it has not learned, or was asked about as if it had not. The light part is the 95\u00a0% interval: more photos make it narrower."),
    h("ul", { class: "enough" }, sorted.map((entry) => row(entry))));
}

function row(entry) {
  const [kind, text] = STATUS[entry.status];
  return h("li", {},
    h("div", { class: "enough-name" }, h("h3", {}, entry.name), h("p", { class: "soft small" }, `${entry.taught.toLocaleString("en")} taught`)),
    h("div", { class: "enough-bar" }, entry.together ? interval(entry) : h("p", { class: "soft small" }, "nothing to measure with yet")),
    h("div", { class: "enough-advice" }, h("span", { class: `tag ${kind}` }, text), h("p", { class: "small" }, entry.advice)));
}

function interval({ name, together: { value, low, high, n }, held_out: heldOut }) {
  const said = `${name}: ${percent(value)} of ${n} photos, between ${percent(low)} and ${percent(high)}`;
  return h("div", { class: "interval" },
    svg("svg", { viewBox: "0 0 100 12", preserveAspectRatio: "none", role: "img", "aria-label": said, class: "interval-bar" },
      svg("rect", { class: "interval-back", x: 0, y: 2, width: 100, height: 8, rx: 2 }),
      svg("rect", { class: "interval-range", x: low * 100, y: 2, width: Math.max(1, (high - low) * 100), height: 8 }),
      svg("rect", { class: "interval-value", x: Math.min(98, value * 98), y: 0, width: 2, height: 12 })),
    h("p", { class: "soft small number", "aria-hidden": "true" }, `${percent(value)} of ${n} (${percent(low)} to ${percent(high)})`),
    heldOut && h("p", { class: "soft small number" }, `held out: ${percent(heldOut.value)} of ${heldOut.n} (${percent(heldOut.low)} to ${percent(heldOut.high)})`));
}
