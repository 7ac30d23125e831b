// Teach: name a thing and show it; lists the photos for the next lesson and the taught classes.

import { openClass } from "./classes.js";
import { $, confirm, dialog, h, list, plural, replace } from "./dom.js";
import { Inputs } from "./inputs.js";
import { LessonView } from "./lesson.js";
import { confirmPlan } from "./plan.js";
import { complain, toast } from "./toast.js";

const ENOUGH = 5; // photos of a class to begin with
const SHOWN = 10; // thumbnails on a card

export class Teach {
  constructor(session) {
    this.session = session;
    this.name = h("input", { type: "text", id: "class-name", autocomplete: "off", spellcheck: "false", maxlength: "100", placeholder: "for example: fish", onkeydown: (event) => this.#enter(event), oninput: () => this.#named() });
    this.message = h("p", { class: "message", id: "class-name-message", "aria-live": "polite" });
    this.chips = h("div", { class: "chips", role: "group", "aria-label": "Classes so far" });
    this.field = h("div", { class: "field" }, h("label", { for: "class-name" }, "What is it?"), this.name, this.message, this.chips);
    this.inputs = new Inputs("teach", {
      addLabel: "Add drawing",
      drawn: (pad) => this.#addDrawing(pad),
      allowed: () => this.#named(true),
      taken: (blob) => this.#add(blob),
      received: (found) => this.receive(found),
      sentence: "Photos of the class named above, a folder with a subfolder for each class, or a zip of it. Pictures can be pasted from the clipboard.",
    });
    replace($("#teach-input"), this.field, this.inputs.elements);
    this.lesson = new LessonView(session, $("#lesson"));
    $("#teach-now").onclick = () => this.teach();
    $("#empty-basket").onclick = () => this.#removeAll();
    $("#choose-folder").onclick = () => this.inputs.choose(true);
    for (const what of ["model", "lesson"]) session.addEventListener(what, () => this.render());
    session.draft.addEventListener("change", () => this.render());
  }

  leave() { this.inputs.webcam.stop(); }

  #enter(event) {
    if (event.key !== "Enter") return;
    event.preventDefault();
    if (this.inputs.pad.empty) this.inputs.pad.canvas.focus();
    else this.#addDrawing(this.inputs.pad);
  }

  #named(demand = false) {
    const name = this.name.value.trim();
    const missing = demand && !name;
    this.field.classList.toggle("wrong", missing);
    this.message.textContent = missing ? "Say what it is first." : "";
    if (missing) this.name.focus();
    for (const chip of this.chips.children) chip.setAttribute("aria-pressed", String(chip.dataset.name === name));
    return !missing;
  }

  async #addDrawing(pad) {
    if (pad.empty || !this.#named(true)) return;
    if (await this.#add(pad.picture())) pad.clear();
  }

  async #add(blob) {
    try {
      const { added, repeated } = await this.session.draft.add(blob, this.name.value.trim());
      if (!added.length && repeated) toast("That very picture is there already.");
      return true;
    } catch (error) {
      this.message.textContent = error.message;
      this.field.classList.add("wrong");
      return false;
    }
  }

  // Photos that were dropped, pasted or chosen.
  async receive({ photos, zips, others, nested }) {
    const known = this.session.classNames();
    if (nested && !photos.some(({ className }) => known.includes(className)) && !await addNested(nested)) return;
    const loose = photos.filter(({ className }) => className === null);
    if (loose.length) {
      const name = this.name.value.trim() || await askName(loose.length, this.session.classNames());
      if (!name) return;
      for (const photo of loose) photo.className = name;
    }
    if (!photos.length && !zips.length) {
      toast(others.length ? `${list(others.slice(0, 3))}: no photo that can be read.` : "There is no photo in it.", { bad: true });
      return;
    }
    try {
      const answers = photos.length ? [await this.session.draft.addMany(photos)] : [];
      for (const zip of zips) answers.push(await this.session.draft.addZip(zip));
      report(answers);
    } catch (error) {
      complain(error);
    }
  }

  async #removeAll() {
    const sure = await dialog("Remove all photos that wait?", [h("p", {}, "What was taught before stays as it is.")], [
      { value: "", text: "Keep them", kind: "quiet" }, { value: "yes", text: "Remove them", kind: "danger" }]);
    if (sure) this.session.draft.clear().catch(complain);
  }

  async teach() {
    const button = $("#teach-now");
    button.disabled = true;
    button.textContent = "Looking at them";
    try {
      const options = await confirmPlan(this.session);
      if (options) {
        await this.session.begin(options);
        $("#lesson").scrollIntoView({ block: "nearest" });
        $("#main").focus({ preventScroll: true });
      }
    } catch (error) {
      complain(error);
    } finally {
      this.render();
    }
  }

  render() {
    const { model, draft, lesson } = this.session;
    if (!model) return;
    const waiting = draft.classes();
    const taught = new Map(model.classes.map((entry) => [entry.name, entry]));
    const names = [...new Set([...waiting.keys(), ...this.session.learning.classes.keys(), ...taught.keys()])];
    replace(this.chips, this.session.classNames().slice(0, 24).map((name) => h("button", {
      type: "button", class: "chip", "data-name": name, "aria-pressed": String(name === this.name.value.trim()),
      onclick: () => { this.name.value = name; this.#named(); },
    }, h("span", {}, name))));
    $("#first-steps").hidden = names.length > 2 || taught.size > 0 || lesson?.state === "running";
    replace($("#cards"), names.map((name) => this.#card(name, waiting.get(name) ?? [], taught.get(name))));
    this.#bar(waiting, draft, lesson);
  }

  #card(name, photos, taught) {
    const total = photos.length + (taught?.taught ?? 0);
    const learning = this.session.learning.classes.get(name);
    const more = photos.length > SHOWN;
    const fresh = photos.slice(more ? 1 - SHOWN : -SHOWN).reverse();
    return h("li", { class: "card", "data-name": name },
      h("div", { class: "card-head" },
        h("h3", {}, name),
        h("p", { class: "tags" },
          photos.length > 0 && h("span", { class: "tag new" }, plural(photos.length, "new photo")),
          learning && h("span", { class: "tag warn" }, this.#learningTag(learning)),
          taught && h("span", { class: "tag" }, `${taught.taught.toLocaleString("en")} taught`))),
      !taught && !learning && total < ENOUGH && h("p", { class: "soft small" }, `${plural(ENOUGH - total, "more", "more")} to begin with`),
      taught?.accuracy && h("p", { class: "soft small" }, `${Math.round(taught.accuracy.value * taught.accuracy.n)} of ${plural(taught.accuracy.n, "held-out photo")} right`),
      h("div", { class: "thumbs" },
        fresh.map((photo) => this.#thumb(photo, name)),
        more && h("button", { type: "button", class: "thumb more", "aria-label": `Show all ${photos.length} new photos of ${name}`, onclick: () => openClass(this.session, name) }, `+ ${photos.length - fresh.length}`),
        this.#known(name, taught, learning).slice(0, more ? 0 : SHOWN - fresh.length)),
      h("div", { class: "row" },
        h("button", { type: "button", class: "small-button", onclick: () => this.#addTo(name) }, "Add more"),
        h("button", { type: "button", class: "small-button quiet", "aria-label": `Details of ${name}`, onclick: () => openClass(this.session, name) }, "Details")));
  }

  #learningTag({ length }) {
    const { lesson, model } = this.session;
    if (lesson.state === "stopped") return "lesson stopped";
    return model.pending ? "learning" : `learning ${length.toLocaleString("en")}`; // the quick version counts them among what was taught
  }

  // Photos that are being learned, then taught ones; the quick version knows photos that are both.
  #known(name, taught, learning) {
    const { api, learning: { id } } = this.session;
    const urls = taught?.thumbnails ?? [];
    const fresh = (learning ?? []).filter((photo) => !urls.some((url) => url.endsWith(photo.id))).reverse();
    const picture = (url, alt) => h("span", { class: "thumb" }, h("img", { src: url, alt, loading: "lazy" }));
    return [
      ...fresh.map((photo) => picture(api.lessonThumbnail(id, photo.id), `New photo of ${name}`)),
      ...urls.map((url) => picture(url, `Taught photo of ${name}`)),
    ];
  }

  #thumb(photo, name) {
    return h("span", { class: "thumb fresh" },
      h("img", { src: this.session.api.draftThumbnail(photo.id), alt: `New photo of ${name}`, loading: "lazy" }),
      h("button", { type: "button", class: "remove", "aria-label": `Remove this photo of ${name}`, onclick: () => this.session.draft.remove([photo.id]).catch(complain) }, "×"));
  }

  #addTo(name) {
    this.name.value = name;
    this.#named();
    $("#teach-input").scrollIntoView({ block: "nearest" });
    this.inputs.focus();
  }

  #bar(waiting, draft, lesson) {
    const running = lesson?.state === "running";
    const { uploading, photos } = draft;
    $("#lesson-bar").hidden = !photos.length && !uploading;
    const summary = uploading && uploading.total > 1
      ? `${uploading.done.toLocaleString("en")} of ${plural(uploading.total, "photo")} received`
      : `${plural(photos.length, "photo")} in ${plural(waiting.size, "class", "classes")}`;
    replace($(".lesson-summary"), h("strong", {}, summary), h("span", { class: "soft" }, running ? " for the lesson after this one" : " for the next lesson"));
    $("#teach-now").disabled = running || Boolean(uploading);
    $("#teach-now").textContent = running ? "Wait for the lesson" : "Teach";
  }
}

async function askName(n, known) {
  const input = h("input", { type: "text", id: "loose-name", list: "loose-names", autocomplete: "off", autofocus: true });
  const answer = await dialog(`What is on ${n === 1 ? "this photo" : `these ${n} photos`}?`, [
    h("div", { class: "field" }, h("label", { for: "loose-name" }, "Name of the class"), input,
      h("datalist", { id: "loose-names" }, known.map((name) => h("option", { value: name }))),
      h("p", { class: "soft small" }, "Folders need no name: each subfolder is a class."))],
  [{ value: "", text: "Cancel", kind: "quiet" }, { value: "yes", text: n === 1 ? "Add it" : "Add them", kind: "primary" }]);
  return answer ? input.value.trim() : "";
}

// Whether a folder with folders is one class all the same.
function addNested({ folder, inside }) {
  const names = list(inside.length > 4 ? [...inside.slice(0, 3), `${inside.length - 3} more`] : inside);
  return confirm(`Is ${folder} one class?`, `The photos in all its folders (${names}) count as class ${folder}. If those are the classes, drop ${folder} itself.`, "Yes, add them");
}

function report(answers) {
  const added = answers.reduce((n, answer) => n + answer.added.length, 0);
  const moved = answers.reduce((n, answer) => n + answer.moved.length, 0);
  const repeated = answers.reduce((n, answer) => n + answer.repeated, 0);
  const errors = answers.flatMap((answer) => answer.errors);
  const parts = added || !(moved || repeated) ? [`${plural(added, "photo")} added.`] : [];
  if (moved) parts.push(`${plural(moved, "photo")} moved to another class.`);
  if (repeated) parts.push(`${plural(repeated, "photo")} there already.`);
  if (errors.length) parts.push(`${plural(errors.length, "file")} left out: ${errors[0].error}`);
  toast(parts.join(" "), { bad: errors.length > 0 && added + moved === 0 });
}
