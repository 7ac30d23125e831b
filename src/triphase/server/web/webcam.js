// The webcam: a preview, single frames as JPEG, and a button that takes a burst while it is held.

import { h } from "./dom.js";
import { encode } from "./encode.js";

const SIDE = 256; // pixels of the shorter side of a picture
const EVERY = 200; // milliseconds between two pictures of a burst

export class Webcam {
  constructor({ started = () => {}, stopped = () => {} } = {}) {
    this.started = started;
    this.stopped = stopped;
    this.video = h("video", { autoplay: true, muted: true, playsinline: true, hidden: true, "aria-label": "Webcam preview" });
    this.video.muted = true;
    this.note = h("p", {}, "The pictures stay on this computer.");
    this.count = h("span", { class: "camera-count number", hidden: true });
    this.frame = h("div", { class: "camera-frame" }, this.video, this.note, this.count);
    this.toggle = h("button", { type: "button", onclick: () => (this.running ? this.stop() : this.start()) }, "Start the webcam");
    this.canvas = h("canvas");
    this.#show();
  }

  get running() { return Boolean(this.stream); }

  async start() {
    try {
      if (!navigator.mediaDevices) throw new Error("insecure");
      this.stream = await navigator.mediaDevices.getUserMedia({ video: { width: { ideal: 640 }, height: { ideal: 480 } } });
    } catch (error) {
      this.note.textContent = WHY[error.name] ?? WHY[error.message] ?? `The webcam cannot be used: ${error.message}`;
      return;
    }
    this.video.srcObject = this.stream;
    await this.video.play();
    this.#show();
    this.started();
  }

  stop() {
    if (!this.stream) return;
    for (const track of this.stream.getTracks()) track.stop();
    this.stream = null;
    this.#show();
    this.stopped();
  }

  #show() {
    this.video.hidden = !this.stream;
    this.note.hidden = Boolean(this.stream);
    this.toggle.textContent = this.stream ? "Stop the webcam" : "Start the webcam";
    this.toggle.classList.toggle("primary", !this.stream);
  }

  picture() {
    const { videoWidth: width, videoHeight: height } = this.video;
    const side = Math.min(width, height); // what the square preview shows
    this.canvas.width = this.canvas.height = SIDE;
    this.canvas.getContext("2d").drawImage(this.video, (width - side) / 2, (height - side) / 2, side, side, 0, 0, SIDE, SIDE);
    return encode(this.canvas, "image/jpeg", 0.9);
  }

  // A button that takes one picture at a press and more while it is held, by pointer or by Space.
  burstButton(allowed, taken) {
    let timer = null;
    let n = 0;
    const shoot = () => {
      this.count.textContent = String(++n);
      taken(this.picture());
    };
    const press = () => {
      if (timer || !this.running || !allowed()) return;
      n = 0;
      this.count.hidden = false;
      shoot();
      timer = setInterval(shoot, EVERY);
    };
    const release = () => {
      clearInterval(timer);
      timer = null;
      this.count.hidden = true;
    };
    const isKey = (event) => event.key === " " || event.key === "Enter";
    return h("button", {
      type: "button", class: "primary grow", disabled: true,
      onpointerdown: (event) => { event.target.setPointerCapture(event.pointerId); press(); },
      onpointerup: release, onpointercancel: release, onblur: release, oncontextmenu: (event) => event.preventDefault(),
      onkeydown: (event) => { if (isKey(event)) { event.preventDefault(); press(); } },
      onkeyup: (event) => { if (isKey(event)) release(); },
    }, "Hold to take pictures");
  }
}

const WHY = {
  NotAllowedError: "The browser does not let this page use the webcam. Allow it beside the address, then try again.",
  NotFoundError: "No webcam was found. Plug one in, or draw or drop photos instead.",
  NotReadableError: "Another program is using the webcam. Close it, then try again.",
  insecure: "Browsers allow the webcam on this computer or over https only. Start the server with --certfile and --keyfile.",
};
