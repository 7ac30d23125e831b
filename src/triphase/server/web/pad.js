// A drawing pad: pointer or keyboard, dark pencil on white paper, strokes that can be taken back.

import { h, icon } from "./dom.js";
import { encode } from "./encode.js";

const SIDE = 256; // pixels of the picture
const PENCIL = 9;
const STEP = 8; // pixels that an arrow key moves the pencil

export class Pad {
  constructor({ changed = () => {} } = {}) {
    this.strokes = [];
    this.changed = changed;
    this.position = [SIDE / 2, SIDE / 2];
    this.penDown = false;
    this.canvas = h("canvas", {
      class: "pad", width: SIDE, height: SIDE, tabindex: "0", role: "application",
      "aria-label": "Drawing pad. Arrow keys move the pencil, Space puts it down or lifts it, Backspace takes a stroke back.",
      onpointerdown: (event) => this.#start(event),
      onpointermove: (event) => this.#move(event),
      onpointerup: () => this.#end(),
      onpointercancel: () => this.#end(),
      onkeydown: (event) => this.#key(event),
      onblur: () => { this.penDown = false; this.pen.hidden = true; },
    });
    this.pen = h("span", { class: "pen", hidden: true });
    this.hint = h("span", { class: "pad-hint" }, "Draw here");
    this.frame = h("div", { class: "pad-frame" }, this.canvas, this.hint, this.pen);
    this.undoButton = h("button", { type: "button", class: "icon-button", "aria-label": "Take the last stroke back", title: "Take the last stroke back", onclick: () => this.undo() }, icon("M8 6L4 10l4 4M4 10h10a5 5 0 0 1 0 10h-3"));
    this.clearButton = h("button", { type: "button", class: "icon-button", "aria-label": "Clear the pad", title: "Clear the pad", onclick: () => this.clear() }, icon("M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13"));
    this.#draw();
  }

  get empty() { return this.strokes.length === 0; }

  clear() { this.strokes = []; this.#draw(); this.changed(); }

  undo() { this.strokes.pop(); this.penDown = false; this.#draw(); this.changed(); }

  picture() { return encode(this.canvas, "image/png"); }

  #point(event) {
    const box = this.canvas.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * SIDE, ((event.clientY - box.top) / box.height) * SIDE];
  }

  #start(event) {
    if (event.button) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.drawing = true;
    this.strokes.push([this.#point(event)]);
    this.#draw();
  }

  #move(event) {
    if (!this.drawing) return;
    for (const part of event.getCoalescedEvents?.() ?? [event]) this.strokes.at(-1).push(this.#point(part));
    this.#draw();
  }

  #end() {
    if (!this.drawing) return;
    this.drawing = false;
    this.changed();
  }

  #key(event) {
    const move = { ArrowLeft: [-STEP, 0], ArrowRight: [STEP, 0], ArrowUp: [0, -STEP], ArrowDown: [0, STEP] }[event.key];
    if (!move && event.key !== " " && event.key !== "Backspace") return;
    event.preventDefault();
    if (event.key === "Backspace") this.undo();
    if (event.key === " ") {
      this.penDown = !this.penDown;
      if (this.penDown) this.strokes.push([[...this.position]]);
    }
    if (move) {
      this.position = this.position.map((value, i) => Math.min(SIDE - 4, Math.max(4, value + move[i])));
      if (this.penDown) this.strokes.at(-1)?.push([...this.position]);
    }
    this.pen.hidden = false;
    this.pen.classList.toggle("down", this.penDown);
    this.pen.style.left = `${(this.position[0] / SIDE) * 100}%`;
    this.pen.style.top = `${(this.position[1] / SIDE) * 100}%`;
    this.#draw();
    if (this.penDown) this.changed(); // not only when it is lifted: Tab leaves the pad, too
  }

  #draw() {
    const context = this.canvas.getContext("2d");
    context.fillStyle = "#fff";
    context.fillRect(0, 0, SIDE, SIDE);
    context.strokeStyle = "#1c1d1b";
    context.lineWidth = PENCIL;
    context.lineCap = context.lineJoin = "round";
    for (const stroke of this.strokes) {
      context.beginPath();
      context.moveTo(...stroke[0]);
      for (const point of stroke.length > 1 ? stroke : [stroke[0]]) context.lineTo(...point);
      context.stroke();
    }
    this.hint.hidden = !this.empty;
    this.undoButton.disabled = this.clearButton.disabled = this.empty;
  }
}
