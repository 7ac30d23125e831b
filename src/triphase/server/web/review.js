// Review: what to label next, labels that look wrong, whether each class has enough, and what is confused with what.

import { showConfusions } from "./confusions.js";
import { $, h, icon, replace } from "./dom.js";
import { showEnough } from "./enough.js";
import { emptyState } from "./grid.js";
import { showInbox } from "./inbox.js";
import { showSuspects } from "./suspects.js";

export class Review {
  constructor(session) {
    this.session = session;
    this.body = $("#review-body");
    const again = () => { if (!$("#review").hidden) this.enter(); };
    session.addEventListener("ended", again);
    session.addEventListener("reviewed", again);
  }

  render() {}

  async enter() {
    if (!this.session.model.version) {
      replace(this.body, emptyState("Nothing to review yet", "After the first lesson this shows which classes need more photos, which labels look wrong, and what the model was unsure of.",
        icon("M4 5h7v6H4z", "M13 5h7v6h-7z", "M4 13h7v6H4z", "M14 16l2 2 4-4"), h("a", { class: "button primary", href: "#teach" }, "Teach it something")));
      return;
    }
    const places = [showInbox, showSuspects, showEnough, showConfusions].map((show) => {
      const place = h("section", { class: "panel", "aria-busy": "true" }, h("p", { class: "soft" }, "Looking"));
      show(this.session, place)
        .catch((error) => replace(place, h("p", { class: "soft" }, error.message)))
        .finally(() => place.removeAttribute("aria-busy"));
      return place;
    });
    if (!this.body.querySelector(".panel")) replace(this.body, h("div", { class: "panels" }, places));
    else await this.#exchange(places);
  }

  // After a change, the new panels replace the old ones together once all are loaded, so that the layout does not jump.
  async #exchange(places) {
    while (places.some((place) => place.hasAttribute("aria-busy"))) await new Promise((resolve) => setTimeout(resolve, 50));
    replace(this.body, h("div", { class: "panels" }, places));
  }
}
