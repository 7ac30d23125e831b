// One answer: the class with its probability, or "unknown"; bars for the next best; and the correction beside it.

import { h, percent, replace } from "./dom.js";
import { namer } from "./namer.js";

export class AnswerCard {
  // correct(name, picture): the answer was wrong, or unknown
  constructor(session, correct) {
    this.label = h("h2", { class: "answer-label" });
    this.sure = h("p", { class: "soft" });
    this.rate = h("p", { class: "soft small number rate", hidden: true });
    this.bars = h("div", { class: "bars" });
    this.nearest = h("div", { class: "stack", hidden: true });
    this.noted = h("p", { class: "noted", role: "status" });
    this.namer = namer({ names: session.classNames(), ask: "No, it is", given: async (name) => {
      if (await correct(name, this.picture)) this.noted.textContent = `Noted as ${name} for the next lesson.`;
    } });
    this.ask = this.namer.element.querySelector(".label");
    this.element = h("div", { class: "panel answer" },
      h("div", { class: "answer-head", "aria-live": "polite", "aria-atomic": "true" }, this.label, this.sure),
      this.bars, this.nearest, this.namer.element, this.noted, this.rate);
  }

  show(answer, picture, rate = null) {
    this.picture = picture;
    this.noted.textContent = "";
    if (answer.error) {
      this.#head("Cannot be read", answer.error);
      replace(this.bars);
      return;
    }
    const { known, label, best, probability, top } = answer;
    if (known) this.#head(label, `${probability < 0.5 ? "only " : ""}${percent(probability)} sure`);
    else this.#head("unknown", `It looks like nothing it was taught. Closest is ${best}.`);
    this.element.classList.toggle("unsure", !known);
    this.ask.textContent = known ? "No, it is" : "What is it?";
    replace(this.bars, top.map((entry) => h("div", { class: "bar-row" },
      h("span", { class: "name" }, entry.label), h("span", { class: "number" }, percent(entry.probability)),
      h("span", { class: "track" }, h("span", { class: "fill", "width%": Math.max(0.5, entry.probability * 100) })))));
    this.nearest.hidden = true;
    this.rate.hidden = !rate;
    if (rate) this.rate.textContent = `${rate.toFixed(rate < 10 ? 1 : 0)} answers a second`;
  }

  #head(label, sure) {
    if (this.label.textContent !== label) this.label.textContent = label;
    if (this.sure.textContent !== sure) this.sure.textContent = sure;
  }

  showNearest(photos) {
    const pictured = photos.filter(({ thumbnail }) => thumbnail);
    this.nearest.hidden = !pictured.length;
    replace(this.nearest, h("p", { class: "label" }, "The taught photos that it resembles most"),
      h("div", { class: "thumbs" }, pictured.map(({ thumbnail, label }) => h("figure", { class: "near" },
        h("span", { class: "thumb" }, h("img", { src: thumbnail, alt: `Taught photo of ${label}` })), h("figcaption", {}, label)))));
  }
}
