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
    assign: async (chosen, name) => { if (await move(session, chosen, name)) grid.mark(chosen, `moved to ${name}`); },
    actions: [
      { text: "The label is right", run: async (chosen) => { if (await confirm(session, chosen)) grid.mark(chosen, "the label is right"); } },
      { text: "Take back", run: async (chosen) => { if (await takeBack(session, chosen)) grid.mark(chosen, "taken back"); } },
    ],
  });
  replace(place, heading("Labels that look wrong", "The others of their class do not look like these. Move them, take them back, or say that the label is right.", suspects.length), grid.element);
}

async function confirm(session, items) {
  try {
    await session.api.confirmLabels(items.map(({ key }) => key));
    session.dispatchEvent(new Event("reviewed"));
    return true;
  } catch (error) {
    complain(error);
    return false;
  }
}
