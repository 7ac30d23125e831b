// The inbox: photos with unsure answers, sorted by how much their labels would teach.

import { bytes, confirm, h, percent, plural, replace } from "./dom.js";
import { PhotoGrid } from "./grid.js";
import { heading } from "./heading.js";
import { complain, toast } from "./toast.js";

const SHOWN = 120;
const TITLE = "What it was unsure of";

export async function showInbox(session, place) {
  const { photos, total, bytes: used, max_bytes: room } = await session.api.inbox();
  if (!room && !total) {
    replace(place, heading(TITLE, "The server keeps no photo that it only answers. To have the doubtful ones wait here for a label, start it with:"),
      h("p", {}, h("code", {}, `triphase serve ${session.name} --keep-unsure 200MB`)));
    return;
  }
  if (!total) {
    replace(place, heading(TITLE, "Nothing waits. Photos that it answers without being sure, here or over HTTP, will appear in this place."));
    return;
  }
  const items = photos.slice(0, SHOWN).map((photo) => ({
    key: photo.id, url: photo.thumbnail, group: photo.group, photo,
    title: photo.known ? photo.best : "unknown", note: photo.known ? `only ${percent(photo.probability)} sure` : `closest: ${photo.best}`,
  }));
  const grid = new PhotoGrid({
    label: "Photos that wait for a label", items, names: session.classNames(), ask: "These are",
    assign: async (chosen, name) => { if (await label(session, chosen, name)) grid.mark(chosen, `noted as ${name}`); },
    actions: [{ text: "Delete", run: async (chosen) => { if (await remove(session, chosen)) grid.mark(chosen, "deleted"); } }],
  });
  replace(place,
    heading(TITLE, "A label for the first of these would teach it most. Give one, and they join the next lesson.", total),
    grid.element,
    h("div", { class: "row spread" }, h("p", { class: "soft small" }, `${bytes(used)} of ${bytes(room)} used on this computer.`),
      h("button", { type: "button", class: "small-button quiet", onclick: () => clear(session, total) }, "Delete all")));
}

async function label(session, items, name) {
  return change(session, () => session.api.labelInbox(ids(items), name), `${plural(items.length, "photo")} noted as ${name} for the next lesson.`);
}

async function remove(session, items) {
  return change(session, () => session.api.removeFromInbox(ids(items)), `${plural(items.length, "photo")} deleted.`);
}

async function clear(session, total) {
  const sure = await confirm("Delete all of them?", `${plural(total, "photo")} that nobody has given a label. What was taught stays as it is.`, "Delete them", "danger");
  if (sure) await change(session, () => session.api.clearInbox(), "They are deleted.");
}

const ids = (items) => items.map(({ key }) => key);

async function change(session, act, sentence) {
  try {
    await act();
    await Promise.all([session.refresh(), session.draft.load()]);
    session.dispatchEvent(new Event("reviewed"));
    toast(sentence);
    return true;
  } catch (error) {
    complain(error);
    return false;
  }
}
