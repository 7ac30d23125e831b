// The head of a panel: a title, how many photos it is about, and a sentence.

import { h, plural } from "./dom.js";

export function heading(title, sentence, n = 0) {
  return h("div", {},
    h("div", { class: "panel-head" }, h("h2", {}, title), n > 0 && h("span", { class: "tag" }, plural(n, "photo"))),
    h("p", { class: "soft" }, sentence));
}
