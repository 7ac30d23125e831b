// What the areas share: the model, the draft of the next lesson, and the lesson that runs or was stopped.

import { checkConnection, modelApi } from "./api.js";
import { byClass, Draft } from "./draft.js";

const UNFINISHED = ["stopped", "refused", "failed"];
const KINDS = ["scan", "decode", "encode", "corrected", "resumed", "begin", "step", "taught_quick", "state"];

export class Session extends EventTarget {
  constructor(name) {
    super();
    this.name = name;
    this.api = modelApi(name);
    this.draft = new Draft(this.api);
    this.model = null;
    this.lessons = []; // all that are known
    this.lesson = null; // the one that runs, else the newest
    this.confusion = null; // a pair of classes that Review shows first
    this.learning = { id: null, classes: new Map() }; // photos that the newest lesson learns or has stopped to learn, by class
    this.progress = null; // of the running lesson: the newest event of each kind
  }

  async load() {
    const before = this.model?.version;
    await Promise.all([this.refresh(), this.draft.load(), this.findLesson()]);
    if (before !== undefined && before !== this.model.version) this.#tell("ended");
  }

  // Load what another tab or a program has changed; if that is nothing, nothing is drawn again and no click or focus is lost.
  async check() {
    const [model, { lessons }, { photos }] = await Promise.all([this.api.describe(), this.api.lessons(), this.api.draft()]);
    const state = (...parts) => JSON.stringify([...parts], (key, value) => (key === "bytes" ? 0 : value)); // which change all the time
    if (state(model, lessons, photos) !== state(this.model, this.lessons, this.draft.photos)) await this.load();
  }

  async refresh() {
    this.model = await this.api.describe();
    this.#tell("model");
  }

  classNames() {
    const names = [...this.draft.classes().keys(), ...this.learning.classes.keys(), ...this.model.classes.map(({ name }) => name)];
    return [...new Set(names)].sort((a, b) => a.localeCompare(b));
  }

  // Lessons that can be resumed or discarded, newest first.
  get unfinished() { return this.lessons.filter(({ state }) => UNFINISHED.includes(state)); }

  async findLesson() {
    this.lessons = (await this.api.lessons()).lessons;
    await this.#see(this.lessons.find(({ state }) => state === "running") ?? this.lessons[0] ?? null);
  }

  async begin(options) {
    await this.#see(await this.api.begin(options)); // its photos are known before they leave the draft
    await this.draft.load();
  }

  async consolidate(minutes) { await this.#see(await this.api.consolidate(minutes)); }

  async undo() {
    const { version } = await this.api.undo();
    await this.refresh();
    this.#tell("ended");
    return version;
  }

  async stop() { await this.#see(await this.api.stop(this.lesson.id)); }

  async resume(id, options) { await this.#see(await this.api.resume(id, options)); }

  async discard(id, toDraft) {
    await this.api.discard(id, toDraft);
    await this.load(); // its quick version may be taken back
  }

  async #see(lesson) {
    const learning = await this.#learningOf(lesson);
    this.lesson = lesson;
    this.learning = learning;
    if (lesson) this.lessons = [lesson, ...this.lessons.filter(({ id }) => id !== lesson.id)].sort((a, b) => b.id - a.id);
    if (lesson?.state === "running" && this.source === undefined) this.#listen(lesson.id);
    if (lesson?.state !== "running") this.#close();
    this.#tell("lesson");
  }

  async #learningOf(lesson) {
    if (!lesson?.source.draft || !["running", "stopped"].includes(lesson.state)) return { id: null, classes: new Map() };
    if (this.learning.id === lesson.id) return this.learning;
    const { photos } = await this.api.lessonPhotos(lesson.id).catch(() => ({ photos: [] })); // only their pictures are missing then
    return { id: lesson.id, classes: byClass(photos) };
  }

  #listen(id) {
    this.progress = { begun: performance.now() };
    this.source = new EventSource(this.api.eventsUrl(id));
    for (const kind of KINDS) {
      this.source.addEventListener(kind, (event) => this.#heard(kind, JSON.parse(event.data)));
    }
    this.source.onerror = () => {
      if (this.source?.readyState === EventSource.CLOSED) this.#lost();
      else checkConnection(); // the browser tries again by itself
    };
  }

  async #lost() {
    this.#close();
    await this.findLesson().catch(() => {});
  }

  #close() {
    this.source?.close();
    this.source = undefined;
  }

  #heard(kind, data) {
    if (kind === "state") {
      if (data.state !== "running") this.#ended(data.id).catch(() => {});
      return;
    }
    if (kind === "encode" && this.progress.step) return; // photos of the memory, in the middle of the lesson
    this.progress.stage = kind;
    this.progress[kind] = data;
    if (kind === "taught_quick") this.refresh().catch(() => {});
    this.#tell("progress");
  }

  // The events of a resumed lesson include its earlier stops, so the current state decides.
  async #ended(id) {
    const lesson = await this.api.lesson(id);
    if (lesson.state === "running") return;
    await Promise.all([this.refresh(), this.draft.load()]);
    await this.#see(lesson);
    this.#tell("ended");
  }

  #tell(what) { this.dispatchEvent(new Event(what)); }
}
