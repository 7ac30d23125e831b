// Taught photos whose label is probably wrong: move them, take them back, or say that the label is right.

import { move, takeBack } from "./corrections.js";
import { percent, replace } from "./dom.js";
import { PhotoGrid } from "./grid.js";
import { heading } from "./heading.js";
import { complain } from "./toast.js";

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

async function confirm(session, items) {
  try {
    await session.api.confirmLabels(items.map(({ key }) => key));
    session.dispatchEvent(new Event("reviewed"));
  } catch (error) {
    complain(error);
  }
}
