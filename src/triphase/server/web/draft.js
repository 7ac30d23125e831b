// The photos that wait for the next lesson. The server keeps them, so that closing the page loses nothing.

const FILES = 50; // in one request
const BYTES = 32e6;

export class Draft extends EventTarget {
  constructor(api) {
    super();
    this.api = api;
    this.photos = []; // {id, label}
    this.uploading = null; // {done, total}
  }

  // Requests made while one is in flight are merged into a single next one: a burst of pictures makes two requests, not fifty.
  load() {
    this.next ??= (this.loading ?? Promise.resolve()).catch(() => {}).then(() => {
      this.next = null;
      this.loading = this.#load().finally(() => { this.loading = null; });
      return this.loading;
    });
    return this.next;
  }

  async #load() {
    this.photos = (await this.api.draft()).photos;
    this.#changed();
  }

  classes() { return byClass(this.photos); }

  // One picture that was drawn, taken or corrected.
  async add(blob, label) {
    const type = blob.type === "image/png" ? "png" : "jpg";
    const answer = await this.api.addToDraft([{ file: blob, path: blob.name ?? `picture.${type}` }], label);
    if (answer.errors.length) throw new Error(answer.errors[0].error);
    await this.load();
    return answer;
  }

  // Many photos, [{file, className}]; photos that are refused do not affect the others, but it is an error if all are.
  async addMany(photos) {
    const total = { added: [], moved: [], repeated: 0, errors: [] };
    try {
      for (const part of parts(photos)) {
        this.#progress(total.added.length + total.moved.length + total.repeated, photos.length);
        const answer = await this.#addPart(part);
        for (const key of ["added", "moved", "errors"]) total[key].push(...answer[key]);
        total.repeated += answer.repeated;
      }
    } finally {
      this.uploading = null;
      await this.load();
    }
    if (total.errors.length === photos.length) throw new Error(total.errors[0].error);
    return total;
  }

  // Photos of one class. The name of the class is a field of its own, because not every name is kept as part of a file's name.
  async #addPart(part) {
    try {
      return await this.api.addToDraft(part.map(({ file }) => ({ file, path: file.name })), part[0].className);
    } catch (error) {
      if (error.status !== 422) throw error;
      return { added: [], moved: [], repeated: 0, errors: part.map(({ file }) => ({ name: file.name, error: error.message })) };
    }
  }

  async addZip(file) {
    this.#progress(0, 1);
    try {
      return await this.api.addZip(file);
    } finally {
      this.uploading = null;
      await this.load();
    }
  }

  async move(ids, label) { await this.api.moveInDraft(ids, label); await this.load(); }

  async remove(ids) { await this.api.removeFromDraft(ids); await this.load(); }

  async clear() { await this.api.clearDraft(); await this.load(); }

  #progress(done, total) {
    this.uploading = { done, total };
    this.#changed();
  }

  #changed() { this.dispatchEvent(new Event("change")); }
}

export function byClass(photos) {
  const classes = new Map();
  for (const photo of photos) {
    if (!classes.has(photo.label)) classes.set(photo.label, []);
    classes.get(photo.label).push(photo);
  }
  return classes;
}

// Requests: each has photos of one class, and not too many.
function parts(photos) {
  const sorted = photos.toSorted((a, b) => a.className.localeCompare(b.className));
  return requests(sorted, { files: FILES, bytes: BYTES, together: (a, b) => a.className === b.className });
}

// Photos, [{file}], cut into requests of so many files and bytes at most.
export function* requests(photos, { files, bytes, together = () => true }) {
  let part = [];
  let size = 0;
  for (const photo of photos) {
    const full = part.length >= files || size + photo.file.size > bytes;
    if (part.length && (full || !together(part[0], photo))) {
      yield part;
      [part, size] = [[], 0];
    }
    part.push(photo);
    size += photo.file.size;
  }
  if (part.length) yield part;
}
