// Corrections of taught photos: move them to another class, or take them back; if nothing is stored of a photo, the page asks for its file.

import { dialog, h, picture, plural } from "./dom.js";
import { complain, toast } from "./toast.js";

const AT_ONCE = 20; // files that are looked at in one request

// Both resolve to whether the corrected version is in use.
export async function move(session, items, name) {
  return change(session, items, {
    act: (ids) => session.api.moveTaught(ids, name),
    said: (n) => `${plural(n, "photo")} moved to ${name}.`,
    yes: `Learn as ${name}`,
    later: `The next lesson then learns them as ${name}.`,
    actOnFiles: async (files) => {
      await session.draft.addMany(files.map((file) => ({ file, className: name })));
      toast(`${plural(files.length, "photo waits", "photos wait")} as ${name} for the next lesson.`, { action: "Go to Teach", run: () => { location.hash = "#teach"; } });
    },
  });
}

export async function takeBack(session, items) {
  const said = (n) => `${plural(n, "photo")} taken back.`;
  return change(session, items, {
    act: (ids) => session.api.takeBack(ids),
    said,
    yes: "Take back",
    later: "What was learned from them is then taken out.",
    actOnFiles: async (files) => published(session, await session.api.unteach(files), said(files.length)),
  });
}

async function change(session, items, correction) {
  const ids = items.map(({ key }) => key);
  try {
    await published(session, await correction.act(ids), correction.said(ids.length));
    return true;
  } catch (error) {
    if (error.photos?.length) await withFiles(session, ids, new Set(error.photos), correction).catch(complain);
    else complain(error);
    return false;
  }
}

async function withFiles(session, ids, missing, correction) {
  const files = await askForFiles(session, missing, correction);
  if (!files.length) return;
  const stored = ids.filter((id) => !missing.has(id));
  if (stored.length) await published(session, await correction.act(stored), correction.said(stored.length));
  await correction.actOnFiles(files);
}

async function published(session, { version }, sentence) {
  await session.refresh();
  session.dispatchEvent(new Event("ended"));
  toast(`${sentence} Version ${version} is in use.`, { action: "Undo", run: () => session.undo().catch(complain) });
}

// Ask for the files of photos, which are identified by their content, not their name; none if the dialog is cancelled.
async function askForFiles(session, missing, { yes, later }) {
  const found = new Map();
  const status = h("p", { class: "small", role: "status" });
  const input = h("input", { type: "file", id: "missing-photos", multiple: true, accept: "image/*", onchange: async () => {
    status.textContent = "Looking at them";
    await look(session, [...input.files], missing, found).catch((error) => complain(error));
    const left = missing.size - found.size;
    status.textContent = !found.size ? "None of these files is one of the photos."
      : left ? `${found.size} of ${plural(missing.size, "photo")} found; ${left} missing.` : `${plural(found.size, "photo")} found.`;
    input.closest("dialog").querySelector(".primary").disabled = !found.size;
  } });
  const one = missing.size === 1;
  const answer = await dialog(one ? "The photo itself is needed" : "The photos themselves are needed", [
    h("p", {}, `Nothing is stored of ${plural(missing.size, "photo")}. Choose ${one ? "its file" : "their files"}. ${one ? later.replace("them", "it") : later}`),
    pictures(session, missing),
    h("div", { class: "field" }, h("label", { for: "missing-photos" }, one ? "File of the photo" : "Files of the photos"), input, status),
  ], [{ value: "", text: "Cancel", kind: "quiet" }, { value: "yes", text: yes, kind: "primary", disabled: true }]);
  return answer ? [...found.values()] : [];
}

async function look(session, files, missing, found) {
  for (let i = 0; i < files.length; i += AT_ONCE) {
    const part = files.slice(i, i + AT_ONCE);
    const { answers } = await session.api.predict(part, { keep: false });
    answers.forEach(({ id }, j) => { if (missing.has(id)) found.set(id, part[j]); });
  }
}

function pictures(session, ids) {
  return h("div", { class: "thumbs" },
    [...ids].slice(0, AT_ONCE).map((id) => h("span", { class: "thumb" }, picture(session.api.thumbnail(id), "A photo that is needed"))));
}
