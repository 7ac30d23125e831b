// The HTTP interface of docs/api.md: one function for each request that the page makes.

export class Problem extends Error {
  constructor(status, sentence, photos = []) {
    super(sentence);
    this.status = status;
    this.photos = photos; // ids of photos that are needed themselves
  }
}

export const connection = new EventTarget(); // "lost", "found", "unauthorized", "outdated"

async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(`/api/v1${path}`, options);
  } catch {
    connection.dispatchEvent(new Event("lost"));
    throw new Problem(0, "The server does not answer. Start triphase serve again.");
  }
  if (response.status === 401) connection.dispatchEvent(new Event("unauthorized"));
  if (response.status === 409) connection.dispatchEvent(new Event("outdated"));
  if (response.ok) return response.status === 204 ? null : response.json();
  const problem = await response.json().catch(() => ({}));
  throw new Problem(response.status, problem.detail ?? `The server answered with status ${response.status}.`, problem.photos);
}

function json(method, body) {
  return { method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
}

function multipart(fields) {
  const body = new FormData();
  for (const [name, value, filename] of fields) {
    if (filename === undefined) body.append(name, value);
    else body.append(name, value, filename);
  }
  return { method: "POST", body };
}

export async function isAlive() {
  try {
    return (await fetch("/healthz")).ok;
  } catch {
    return false;
  }
}

export async function checkConnection() {
  if (!await isAlive()) connection.dispatchEvent(new Event("lost"));
}

export const models = () => request("/models");
export const makeModel = (name) => request("/models", json("POST", { name }));

export function modelApi(name) {
  const base = `/models/${encodeURIComponent(name)}`;
  const draft = `${base}/drafts/next`;
  const post = (path, body = {}) => request(`${base}${path}`, json("POST", body));
  return {
    describe: () => request(base),
    exportUrl: `/api/v1${base}/export`,

    predict: (blobs, { nearest = 0, group = false, keep = true } = {}) =>
      request(`${base}/predict?top=5&nearest=${nearest}&group=${group}&keep=${keep}`,
        multipart(blobs.map((blob, i) => ["files", blob, blob.name ?? `${i}.jpg`]))),

    draft: () => request(draft),
    addToDraft: (photos, label) =>
      request(`${draft}/photos`, multipart([
        ...(label ? [["label", label]] : []),
        ...photos.map(({ file, path }) => ["files", file, path]),
      ])),
    addZip: (file) => request(`${draft}/zip`, multipart([["file", file, file.name]])),
    moveInDraft: (photos, label) => request(`${draft}/move`, json("POST", { photos, label })),
    removeFromDraft: (photos) => request(`${draft}/remove`, json("POST", { photos })),
    clearDraft: () => request(draft, { method: "DELETE" }),
    draftThumbnail: (id) => `/api/v1${draft}/thumbnails/${id}`,

    plan: (options) => post("/lessons/plan", { draft: "next", ...options }),
    begin: (options) => post("/lessons", { draft: "next", ...options }),
    consolidate: (minutes) => post("/consolidate", { minutes }),
    lessons: () => request(`${base}/lessons`),
    lesson: (id) => request(`${base}/lessons/${id}`),
    lessonPhotos: (id) => request(`${base}/lessons/${id}/photos`),
    lessonThumbnail: (id, photo) => `/api/v1${base}/lessons/${id}/thumbnails/${photo}`,
    stop: (id) => post(`/lessons/${id}/stop`),
    resume: (id, options = {}) => post(`/lessons/${id}/resume`, options),
    discard: (id, toDraft) => request(`${base}/lessons/${id}?to_draft=${toDraft}`, { method: "DELETE" }),
    eventsUrl: (id) => `/api/v1${base}/lessons/${id}/events`,

    versions: () => request(`${base}/versions`),
    undo: () => request(`${base}/undo`, { method: "POST" }),
    rename: (old, to) => post("/rename", { old, new: to }),
    inbox: () => request(`${base}/inbox`),
    labelInbox: (photos, label) => post("/inbox/label", { photos, label, draft: "next" }),
    removeFromInbox: (photos) => post("/inbox/remove", { photos }),
    clearInbox: () => request(`${base}/inbox`, { method: "DELETE" }),

    heldOut: () => request(`${base}/review/held-out`),
    classAdvice: () => request(`${base}/review/classes`),
    suspects: () => request(`${base}/review/suspects`),
    confirmLabels: (photos) => post("/review/confirm", { photos }),
    moveTaught: (photos, label) => post("/move", { photos, label }),
    takeBack: (photos) => post("/take-back", { photos }),
    unteach: (files) => request(`${base}/unteach`, multipart(files.map((file) => ["files", file, file.name]))),
    photos: (label, offset, limit) => request(`${base}/photos?label=${encodeURIComponent(label)}&offset=${offset}&limit=${limit}`),
    thumbnail: (id) => `/api/v1${base}/thumbnails/${id}`,

    forget: (label, everywhere) => post("/forget", { label, everywhere }),
  };
}
