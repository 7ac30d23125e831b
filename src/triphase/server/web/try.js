// Try: draw, hold something before the webcam, or drop photos, and correct what is wrong.

import { AnswerCard } from "./answer.js";
import { requests } from "./draft.js";
import { $, h, icon, list, percent, plural, replace } from "./dom.js";
import { PhotoGrid, emptyState } from "./grid.js";
import { Inputs } from "./inputs.js";
import { complain, toast } from "./toast.js";

const AFTER = 120; // milliseconds of rest after a stroke
const NEAREST = 6; // taught photos to compare with
const AT_ONCE = { files: 100, bytes: 200e6 }; // in one request; the server takes 512 MB
const NAMED = 8; // classes that are told by name

export class Try {
  constructor(session, teachNow) {
    this.session = session;
    this.teachNow = teachNow;
    this.order = 0; // of the newest picture
    this.addresses = []; // of the photos that are shown
    this.before = new Map(); // photo -> its class before it was corrected here; null if it did not wait for a lesson
    this.column = $("#answer-column");
    this.inputs = new Inputs("try", {
      changed: (pad) => this.#drawn(pad),
      live: (webcam) => this.#live(webcam),
      received: (found) => this.receive(found),
      sentence: "One or many, or paste one: each gets an answer.",
    });
    replace($("#try-input"), this.inputs.elements);
    session.addEventListener("model", () => this.render());
  }

  leave() { this.inputs.webcam.stop(); }

  render() {
    const { model } = this.session;
    $("#try-input").hidden = !model?.version;
    if (!model?.version) {
      replace(this.column, emptyState("It has learned nothing yet", "Teach it two or three things first: five drawings of each are enough.",
        icon("M4 20l1-4L16 5l3 3L8 19z", "M14 7l3 3"), h("a", { class: "button primary", href: "#teach" }, "Teach it something")));
      return;
    }
    if (this.version === model.version && this.column.childElementCount) return;
    this.version = model.version;
    if (this.card && !this.inputs.pad.empty) this.#drawn(this.inputs.pad);
    else this.#wait();
  }

  key(event) {
    if (/^[1-9]$/.test(event.key)) this.card?.namer.pressed(Number(event.key));
  }

  #wait() {
    this.order += 1; // an answer that is on its way comes too late
    this.card = null;
    const names = this.session.model.classes.map(({ name }) => name);
    const known = names.length > NAMED ? plural(names.length, "class", "classes") : list(names);
    replace(this.column, emptyState("Show it something", `It knows ${known}. Show it one of them, or something else to see it say "unknown".`,
      icon("M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16z", "M9 10h.01M15 10h.01M9 15c1 1 5 1 6 0")));
  }

  #drawn(pad) {
    clearTimeout(this.timer);
    if (pad.empty) { this.#wait(); return; }
    this.timer = setTimeout(() => this.#answer(pad.picture()).catch(complain), AFTER);
  }

  // One request at a time, as fast as the server answers.
  async #live(webcam) {
    this.card = null;
    let speed = null;
    let last = performance.now();
    while (webcam.running) {
      try {
        await this.#answer(webcam.picture(), { rate: speed ?? 0 });
      } catch (error) {
        complain(error);
        webcam.stop();
      }
      const now = performance.now();
      speed = (speed ?? 1000 / (now - last)) * 0.8 + 0.2 * (1000 / (now - last));
      last = now;
    }
  }

  // Drawings and webcam frames are not kept in the inbox: the person sees the answer right away.
  async #answer(picture, { rate = null } = {}) {
    const order = ++this.order;
    this.inputs.preview(null);
    const { answers } = await this.session.api.predict([picture], { keep: false });
    if (order !== this.order) return; // a newer picture is on its way
    if (!this.card?.element.isConnected) {
      this.card = new AnswerCard(this.session, (name, picture) => this.#correct(name, picture));
      replace(this.column, this.card.element);
    }
    this.card.show(answers[0], picture, rate);
    if (rate === null) await this.#explain(this.card, picture, () => order === this.order);
  }

  // The nearest taught photos are requested after the answer, because the first request for a version takes longer.
  async #explain(card, picture, wanted = () => true) {
    const { answers } = await this.session.api.predict([picture], { nearest: NEAREST, keep: false });
    if (wanted() && card === this.card) card.showNearest(answers[0].nearest);
  }

  // The message after a correction, with links to Teach and to undo.
  async #correct(name, picture) {
    const labels = new Map(this.session.draft.photos.map(({ id, label }) => [id, label]));
    try {
      const { added, moved } = await this.session.draft.add(picture, name);
      if (added.length) this.before.set(added[0].id, null);
      else if (moved.length && !this.before.has(moved[0].id)) this.before.set(moved[0].id, labels.get(moved[0].id));
      const [photo] = [...added, ...moved];
      const said = h("p", {}, this.#noted(name));
      const undo = h("button", { type: "button", class: "small-button quiet", onclick: async () => {
        said.textContent = await this.#takeBack(photo.id);
        undo.remove();
      } }, "Undo");
      return [said, h("button", { type: "button", class: "small-button", onclick: () => this.teachNow() }, "Teach now"), photo && this.before.get(photo.id) !== undefined && undo];
    } catch (error) {
      complain(error);
      return null;
    }
  }

  // A photo that waited as another class goes back there.
  async #takeBack(id) {
    const label = this.before.get(id);
    try {
      if (label) await this.session.draft.move([id], label);
      else await this.session.draft.remove([id]);
      this.before.delete(id);
      return label ? `Taken back: it waits as ${label} again.` : "Taken back.";
    } catch (error) {
      return error.message;
    }
  }

  #noted(name) {
    return `Noted as ${name}. ${plural(this.session.draft.photos.length, "photo waits", "photos wait")} for the next lesson.`;
  }

  // Photos that were dropped, pasted or chosen: each with its answer, to be corrected alone or together.
  async receive({ photos, zips, others }) {
    if (!this.session.model.version) { location.hash = "#teach"; return; }
    if (!photos.length) {
      toast(zips.length ? "Zips are for Teach; drop photos here." : `${others[0] ?? "That"}: no photo that can be read.`, { bad: true });
      return;
    }
    const files = photos.map(({ file }) => file);
    for (const url of this.addresses.splice(0)) URL.revokeObjectURL(url);
    this.card = null;
    this.inputs.pad.clear();
    this.inputs.tabs.choose("try-photos");
    replace(this.column, h("p", { class: "soft" }, `Looking at ${plural(files.length, "photo")}`));
    try {
      const answers = [];
      for (const part of requests(photos, AT_ONCE)) {
        const said = await this.session.api.predict(part.map(({ file }) => file), { group: files.length > 1 });
        const before = answers.length;
        answers.push(...said.answers.map((answer) => ({ ...answer, group: answer.group == null ? null : `${before}-${answer.group}` })));
      }
      this.session.refresh().catch(() => {}); // the inbox may have grown
      if (files.length === 1) await this.#one(files[0], answers[0]);
      else this.#many(files, answers);
    } catch (error) {
      this.#wait();
      complain(error);
    }
  }

  #address(file) {
    const url = URL.createObjectURL(file);
    this.addresses.push(url);
    return url;
  }

  async #one(file, answer) {
    this.card = new AnswerCard(this.session, (name, picture) => this.#correct(name, picture));
    this.card.show(answer, file);
    this.inputs.preview(this.#address(file), file.name);
    replace(this.column, this.card.element);
    if (!answer.error) await this.#explain(this.card, file);
  }

  #many(files, answers) {
    this.inputs.preview(null);
    const items = answers.map((answer, i) => ({
      key: String(i), file: files[i], url: this.#address(files[i]),
      title: answer.error ? "cannot be read" : answer.label,
      group: answer.group, unknown: answer.known === false,
      note: answer.error ?? (answer.known ? `${percent(answer.probability)} sure` : `closest: ${answer.best}`),
    }));
    const unknown = items.filter((item) => item.unknown);
    const grid = new PhotoGrid({
      label: "Answers", items: [...unknown, ...items.filter((item) => !item.unknown)], names: this.session.classNames(), ask: "These are",
      assign: (chosen, name) => this.#assign(grid, chosen, name),
    });
    replace(this.column, h("div", { class: "panel" },
      h("div", { class: "panel-head" }, h("h2", {}, plural(answers.length, "answer")), unknown.length > 0 && h("span", { class: "tag warn" }, `${unknown.length} unknown`)),
      grid.element));
  }

  async #assign(grid, chosen, name) {
    try {
      const { errors } = await this.session.draft.addMany(chosen.map(({ file }) => ({ file, className: name })));
      const refused = new Set(errors.map((error) => error.name));
      grid.mark(chosen.filter(({ file }) => !refused.has(file.name)), `noted as ${name}`);
      const left = errors.length ? ` ${plural(errors.length, "photo")} left out: ${errors[0].error}` : "";
      toast(this.#noted(name) + left, { action: "Teach now", run: () => this.teachNow() });
    } catch (error) {
      complain(error);
    }
  }
}
