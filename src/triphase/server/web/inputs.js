// The input panel: draw, use the webcam, or choose photos.

import { h, icon, picture, replace, tabs } from "./dom.js";
import { fromInput } from "./drop.js";
import { Pad } from "./pad.js";
import { Webcam } from "./webcam.js";

export class Inputs {
  // Callbacks, each optional: drawn(pad), taken(blob), live(webcam), received(found)
  constructor(id, { addLabel, drawn, changed, allowed, taken, live, received, sentence }) {
    this.pad = new Pad({ changed: () => { this.#enable(); changed?.(this.pad); } });
    this.webcam = new Webcam({ started: () => { this.#enable(); live?.(this.webcam); }, stopped: () => this.#enable() });
    this.addButton = addLabel && h("button", { type: "button", class: "primary grow", onclick: () => drawn(this.pad) }, addLabel);
    this.burst = taken && this.webcam.burstButton(allowed, taken);
    const panels = {
      draw: h("div", { class: "stack" }, this.pad.frame, h("div", { class: "row" }, this.addButton, this.pad.undoButton, this.pad.clearButton)),
      webcam: h("div", { class: "stack" }, this.webcam.frame, h("div", { class: "row" }, this.burst, this.webcam.toggle)),
      photos: this.#photos(sentence),
    };
    this.received = received;
    const titles = { draw: "Draw", webcam: "Webcam", photos: "Photos" };
    this.tabs = tabs("How to show it",
      Object.keys(panels).map((name) => ({ id: `${id}-${name}`, title: titles[name], panel: panels[name] })),
      (tab) => { if (tab !== `${id}-webcam`) this.webcam.stop(); });
    this.elements = [this.tabs.bar, ...Object.values(panels)];
    this.tabs.choose(`${id}-draw`);
    this.#enable();
  }

  // Show the photo that is answered, in the place of the pad or the webcam; hide it if there is no URL.
  preview(url, name) {
    replace(this.picture, url && picture(url, name, "cannot be shown"));
    this.picture.hidden = !url;
  }

  // Ask for photos, or for a folder of them.
  choose(folder) {
    const input = h("input", { type: "file", multiple: true, accept: folder ? null : "image/*,.zip", webkitdirectory: folder });
    input.addEventListener("change", () => this.received(fromInput(input.files)));
    input.click();
  }

  // Focus the selected tab.
  focus() { this.tabs.bar.querySelector("[aria-selected=true]").focus(); }

  #photos(sentence) {
    this.picture = h("div", { class: "preview", hidden: true });
    return h("div", { class: "stack" }, this.picture, h("div", { class: "drop-zone" },
      icon("M4 16l4.5-5 3.5 4 2.5-2.5L20 18", "M4 5h16v14H4z", "M15 9.5h.01"),
      h("p", {}, h("strong", {}, "Drop photos anywhere"), h("br"), h("span", { class: "soft small" }, sentence)),
      h("div", { class: "row" },
        h("button", { type: "button", onclick: () => this.choose(false) }, "Choose photos"),
        h("button", { type: "button", onclick: () => this.choose(true) }, "Choose a folder"))));
  }

  #enable() {
    if (this.addButton) this.addButton.disabled = this.pad.empty;
    if (this.burst) this.burst.disabled = this.burst.hidden = !this.webcam.running;
  }
}
