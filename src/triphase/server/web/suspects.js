// Taught photos whose label is probably wrong: move them, take them back, or say that the label is right.

import { dialog, h, percent, plural, replace } from "./dom.js";
import { PhotoGrid } from "./grid.js";
import { heading } from "./heading.js";
import { complain, toast } from "./toast.js";

const SHOWN = 60;

export async function showSuspects(session, place) {
  const { suspects } = await session.api.suspects();
  if (!suspects.length) {
    replace(place, heading("Labels that look wrong", "None: every taught photo looks like its own class."));
    return;
  }
  const items = suspects.slice(0, SHOWN).map((suspect) => ({
    key: suspect.id, url: suspect.thumbnail, suspect,
    title: suspect.label, note: `looks like ${suspect.looks_like}, ${percent(suspect.sure)}`,
  }));
  const grid = new PhotoGrid({
    label: "Photos whose label looks wrong", items, names: session.model.classes.map(({ name }) => name).sort(), ask: "Move them to", newClass: false,
    assign: (chosen, name) => move(session, chosen, name),
    actions: [
      { text: "The label is right", run: (chosen) => confirm(session, chosen) },
      { text: "Take back", run: (chosen) => takeBack(session, chosen) },
    ],
  });
  replace(place, heading("Labels that look wrong", "The others of their class do not look like these. Move them, take them back, or say that the label is right.", suspects.length), grid.element);
}

const ids = (items) => items.map(({ key }) => key);

export async function move(session, items, name) {
  await change(session, () => session.api.moveTaught(ids(items), name), `${plural(items.length, "photo")} moved to ${name}.`);
}

export async function takeBack(session, items) {
  await change(session, () => session.api.takeBack(ids(items)), `${plural(items.length, "photo")} taken back.`);
}

async function confirm(session, items) {
  try {
    await session.api.confirmLabels(ids(items));
    session.dispatchEvent(new Event("reviewed"));
  } catch (error) {
    complain(error);
  }
}

async function change(session, act, sentence) {
  try {
    const { version } = await act();
    await session.refresh();
    session.dispatchEvent(new Event("ended"));
    toast(`${sentence} Version ${version} is in use.`, { action: "Undo", run: () => session.undo().catch(complain) });
  } catch (error) {
    if (error.photos?.length) await askForPhotos(error);
    else complain(error);
  }
}

// Nothing is stored of some photos: they themselves are needed.
async function askForPhotos(error) {
  const answer = await dialog("The photos themselves are needed", [h("p", {}, error.message),
    h("p", { class: "soft" }, "Drop them under Teach, in the class that they show. What they were taught as before is then corrected.")],
  [{ value: "", text: "Close", kind: "quiet" }, { value: "teach", text: "Go to Teach", kind: "primary", focus: true }]);
  if (answer) location.hash = "#teach";
}
