// One answer: the class with its probability, or "unknown" with the closest class; bars for the next best; and the correction.

import { h, percent, replace } from "./dom.js";
import { namer } from "./namer.js";

export class AnswerCard {
  // correct(name, picture) returns the message to show, or null if the correction could not be saved
  constructor(session, correct) {
    this.label = h("h2", { class: "answer-label" });
    this.sure = h("p", {});
    this.doubt = h("p", { class: "soft small" });
    this.rate = h("p", { class: "soft small number rate", hidden: true });
    this.bars = h("div", { class: "bars" });
    this.nearest = h("div", { class: "stack", hidden: true });
    this.noted = h("div", { class: "noted row", role: "status" });
    this.namer = namer({ names: session.classNames(), ask: "No, it is", given: async (name) => {
      const said = await correct(name, this.picture);
      if (said) replace(this.noted, said);
    } });
    this.ask = this.namer.element.querySelector(".label");
    this.element = h("div", { class: "panel answer" },
      h("div", { class: "answer-head", "aria-live": "polite", "aria-atomic": "true" }, this.label, this.sure, this.doubt),
      this.bars, this.nearest, this.namer.element, this.noted, this.rate);
  }

  show(answer, picture, rate = null) {
    this.picture = picture;
    if (rate === null) replace(this.noted); // what the webcam sees changes all the time
    if (answer.error) {
      this.#head("Cannot be read", answer.error, "");
      replace(this.bars);
      return;
    }
    const { known, label, best, probability, top } = answer;
    if (known) this.#head(label, `${probability < 0.5 ? "only " : ""}${percent(probability)} sure`, "");
    else this.#head("unknown", `Closest: ${best}, ${percent(top[0].probability)}`, "It is not enough like anything that it was taught.");
    this.namer.suggest(best);
    this.element.classList.toggle("unsure", !known);
    this.ask.textContent = known ? "No, it is" : "What is it?";
    replace(this.bars, top.map((entry) => h("div", { class: "bar-row" },
      h("span", { class: "name" }, entry.label), h("span", { class: "number" }, percent(entry.probability)),
      h("span", { class: "track" }, h("span", { class: "fill", "width%": Math.max(0.5, entry.probability * 100) })))));
    this.nearest.hidden = true;
    this.rate.hidden = !rate;
    if (rate) this.rate.textContent = `${rate.toFixed(rate < 10 ? 1 : 0)} answers a second`;
  }

  #head(...sentences) {
    [this.label, this.sure, this.doubt].forEach((element, i) => { if (element.textContent !== sentences[i]) element.textContent = sentences[i]; });
  }

  showNearest(photos) {
    const pictured = photos.filter(({ thumbnail }) => thumbnail);
    this.nearest.hidden = !pictured.length;
    replace(this.nearest, h("p", { class: "label" }, "The taught photos that it resembles most"),
      h("div", { class: "thumbs" }, pictured.map(({ thumbnail, label }) => h("figure", { class: "near" },
        h("span", { class: "thumb" }, h("img", { src: thumbnail, alt: `Taught photo of ${label}` })), h("figcaption", {}, label)))));
  }
}
