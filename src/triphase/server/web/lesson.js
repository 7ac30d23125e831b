// A running lesson, its outcome, and resuming one that was stopped.

import { consolidationTitle, consolidationView } from "./consolidation.js";
import { $, confirm, dialog, duration, h, plural, replace } from "./dom.js";
import { outcomeView } from "./outcome.js";
import { complain, toast } from "./toast.js";

const STAGES = [
  { id: "look", title: "Look", text: "Looking at the photos" },
  { id: "I", title: "Phase I", text: "Meeting the new classes while the others are protected" },
  { id: "II", title: "Phase II", text: "Learning all classes together" },
  { id: "III", title: "Phase III", text: "Consolidating the old with the new" },
  { id: "check", title: "Check", text: "Checking on held-out photos that nothing was forgotten" },
];
const CONSOLIDATION = [
  { id: "look", title: "Open", text: "Reading what is stored" },
  { id: "consolidate", title: "Train", text: "Training anew on everything that is stored" },
  { id: "check", title: "Check", text: "Checking on held-out photos whether it got better" },
];
const inTeach = () => location.hash === "#teach" || location.hash === "";
const isConsolidation = (lesson) => lesson.kind === "consolidation";
const stagesOf = (lesson) => (isConsolidation(lesson) ? CONSOLIDATION : STAGES);

export class LessonView {
  constructor(session, place) {
    this.session = session;
    this.place = place;
    this.seen = null; // the lesson whose outcome was put away
    session.addEventListener("lesson", () => this.render());
    session.addEventListener("progress", () => this.#update());
    session.addEventListener("model", () => { if (session.lesson?.state !== "running") this.render(); }); // its version may be taken back
  }

  render() {
    const { lesson, model } = this.session;
    if (!model) return;
    const state = lesson?.id === this.seen ? null : lesson?.state;
    if (state === "running") this.#running();
    else {
      const done = state === "done" && this.watched === lesson.id && this.#inUse(lesson.outcome);
      replace(this.place, done && this.#done(lesson),
        this.session.unfinished.map((other) => (other.state === "stopped" ? this.#stopped(other) : this.#failed(other))));
    }
    this.#tell(state, lesson);
    this.#strip();
  }

  // Whether the outcome of a lesson still holds: not if it was undone or the model has changed since.
  #inUse({ published, version }) { return !published || version === this.session.model.version; }

  // Announce how a lesson ended if another area is open.
  #tell(state, lesson) {
    if (!["done", "refused", "failed"].includes(state) || this.watched !== lesson.id || this.told === lesson.id) return;
    this.told = lesson.id;
    if (!inTeach()) toast(ending(lesson), { bad: state !== "done", action: "What it did", run: () => { location.hash = "#teach"; } });
  }

  #running() {
    const { lesson, model } = this.session;
    this.watched = lesson.id;
    this.stages = stagesOf(lesson).map(({ id, title }) => h("li", { "data-stage": id }, h("span", { class: "mark", "aria-hidden": "true" }), title));
    this.text = h("p", { class: "lesson-text" }, "Starting");
    this.fill = h("span", { class: "fill" });
    this.figures = h("p", { class: "soft small number" });
    this.inUse = h("p", { class: "small", hidden: true });
    this.advice = h("p", { class: "soft small" }, `Go on as you like: ${model.version ? "answers come from the version before until this one is ready" : "it can answer once this first lesson is far enough"}. Stopping loses nothing.`);
    this.track = h("div", { class: "track", role: "progressbar", "aria-label": "Progress of the lesson", "aria-valuemin": "0", "aria-valuemax": "100" }, this.fill);
    const stop = h("button", { type: "button", onclick: async () => {
      stop.disabled = true;
      stop.textContent = "Stopping";
      await this.session.stop().catch(complain);
    } }, "Stop");
    replace(this.place, h("div", { class: "panel lesson-panel" },
      h("div", { class: "panel-head" }, h("h2", {}, isConsolidation(lesson) ? "Consolidating" : "A lesson is running"), stop),
      h("ol", { class: "stages" }, this.stages),
      h("div", { role: "status" }, this.text, this.inUse), this.track, this.figures,
      this.advice));
    this.#update();
  }

  #update() {
    const { progress, lesson } = this.session;
    if (lesson?.state !== "running" || !progress || !this.text) return;
    const { stage, share, text, figures } = describe(progress, stagesOf(lesson));
    const index = stagesOf(lesson).findIndex(({ id }) => id === stage);
    this.stages.forEach((item, i) => { item.className = i < index ? "past" : i === index ? "now" : ""; });
    if (this.text.textContent !== text) this.text.textContent = text;
    this.fill.style.width = `${Math.round(share * 100)}%`;
    this.track.setAttribute("aria-valuenow", String(Math.round(share * 100)));
    this.figures.textContent = figures;
    if (progress.taught_quick && this.inUse.hidden) {
      this.inUse.hidden = false;
      replace(this.inUse, h("span", { class: "tag good" }, "In use already"), " The quick version answers now, and is improved in the background. ", h("a", { href: "#try" }, "Try it"));
      this.advice.textContent = "Go on as you like. Stopping loses nothing.";
    }
    this.#strip();
  }

  #strip() {
    const strip = $("#lesson-strip");
    const running = this.session.lesson?.state === "running";
    strip.hidden = !running || inTeach();
    if (!running || !this.session.progress) return;
    const { share, text } = describe(this.session.progress, stagesOf(this.session.lesson));
    $(".strip-text", strip).textContent = `${isConsolidation(this.session.lesson) ? "Consolidation" : "Lesson"} · ${text}`;
    $(".fill", strip).style.width = `${Math.round(share * 100)}%`;
  }

  // What is said of an unfinished lesson; of several, each has its number.
  #called(lesson, one) {
    if (isConsolidation(lesson)) return "The consolidation";
    return this.session.unfinished.length > 1 ? `Lesson ${lesson.id}` : one;
  }

  #stopped(lesson) {
    const what = `${this.#called(lesson, "A lesson")} was stopped. `;
    const photos = lesson.photos ? `Its ${plural(lesson.photos, "photo")} and all that was learned from them are kept` : "All that was learned is kept";
    return h("div", { class: "banner warn", role: "status" },
      h("p", { class: "grow" }, h("strong", {}, what), `${photos}: it goes on where it was.`),
      this.#discard(lesson),
      h("button", { type: "button", class: "primary", onclick: () => this.session.resume(lesson.id).catch(complain) }, "Resume"));
  }

  #failed(lesson) {
    const refused = lesson.state === "refused";
    const why = refused
      ? `Version ${this.session.model.version} stays in use. Check the names of the new photos. If some are wrong, discard the lesson, keep its photos and correct them. If all are right, publish it anyway.`
      : lesson.error;
    const again = (options) => this.session.resume(lesson.id, options).catch(complain);
    return [h("div", { class: "banner bad", role: "status" },
      h("p", { class: "grow" }, h("strong", {}, `${this.#called(lesson, "The lesson")} ${refused ? "was not published" : "failed"}. `), why),
      this.#discard(lesson),
      refused
        ? h("button", { type: "button", onclick: () => again({ force: true }) }, "Publish it anyway")
        : h("button", { type: "button", onclick: () => again() }, "Try again")),
    lesson.outcome && lesson.id === this.session.lesson.id && outcomeView(lesson.outcome, this.session)];
  }

  #done(lesson) {
    const close = () => { this.seen = lesson.id; this.render(); };
    const view = isConsolidation(lesson) ? consolidationView : outcomeView;
    return view(lesson.outcome, this.session, close);
  }

  #discard(lesson) {
    const discard = (toDraft) => this.session.discard(lesson.id, toDraft).catch(complain);
    const ask = async () => {
      const quick = lesson.quick && lesson.state === "stopped" && this.session.model.pending;
      const use = quick ? "The quick version in use is taken back, too." : "The version in use stays as it is.";
      if (!lesson.source.draft) {
        if (await confirm("Discard it?", `What was learned so far is lost. ${use}`, "Discard it", "danger")) await discard(false);
        return;
      }
      const answer = await dialog("Discard this lesson?", [h("p", {}, use), h("p", {}, "Photos that are kept wait for the next lesson, so that you can take some out or name them differently.")], [
        { value: "", text: "Cancel", kind: "quiet" },
        { value: "delete", text: "Delete its photos", kind: "danger" },
        { value: "back", text: "Keep its photos", kind: "primary", focus: true },
      ]);
      if (answer) await discard(answer === "back");
    };
    return h("button", { type: "button", class: "quiet", onclick: ask }, "Discard it");
  }
}

// How it ended, in a sentence.
function ending(lesson) {
  const { state, outcome } = lesson;
  if (state === "refused") return "The lesson was not published.";
  if (state === "failed") return isConsolidation(lesson) ? "The consolidation failed." : "The lesson failed.";
  if (isConsolidation(lesson)) return `${consolidationTitle(outcome)}.`;
  return outcome?.published ? `Learned. Version ${outcome.version} is in use.` : "The lesson is over.";
}

function describe({ stage, scan, decode, encode, step }, stages) {
  if (stage === "step" && step) {
    const within = (step.epoch - 1 + step.step / step.steps) / step.epochs;
    const phases = stages.slice(1, -1).map(({ id }) => id);
    const order = Math.max(0, phases.indexOf(step.phase));
    const over = order === phases.length - 1 && within >= 1;
    const figures = [`epoch ${step.epoch} of ${step.epochs}`];
    if (step.images_per_second) figures.push(`${plural(Math.round(step.images_per_second), "image")} per second`);
    if (step.seconds_left !== null && step.seconds_left !== undefined) figures.push(step.seconds_left < 1 ? "almost through" : `about ${duration(step.seconds_left)} left`);
    const { id, title, text } = stages.find((entry) => entry.id === (over ? "check" : step.phase)) ?? stages[1];
    return { stage: id, share: 0.1 + 0.85 * ((order + within) / phases.length), text: over ? text : `${title}: ${text.charAt(0).toLowerCase()}${text.slice(1)}`, figures: over ? "" : figures.join(" · ") };
  }
  const done = encode ?? decode ?? scan;
  const share = (part) => (part ? part.done / Math.max(1, part.total) : 0);
  return {
    stage: "look",
    share: encode ? 0.05 + 0.05 * share(encode) : 0.05 * share(done),
    text: encode ? "Turning the photos into numbers" : stages[0].text,
    figures: done ? `${done.done.toLocaleString("en")} of ${plural(done.total, "photo")}` : "",
  };
}

