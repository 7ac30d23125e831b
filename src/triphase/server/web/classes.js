// One class: its accuracy and photos, renaming and forgetting it.

import { move, takeBack } from "./corrections.js";
import { confirm, dialog, h, percent, plural } from "./dom.js";
import { PhotoGrid } from "./grid.js";
import { complain, toast } from "./toast.js";

const PAGE = 48; // photos that are shown at a time

export async function openClass(session, name) {
  const taught = session.model.classes.find((entry) => entry.name === name);
  const waiting = session.draft.classes().get(name) ?? [];
  const input = h("input", { type: "text", id: "rename-to", value: name, autocomplete: "off", spellcheck: "false" });
  const close = (value) => input.closest("dialog").close(value);
  const fresh = await waitingPhotos(session, name, waiting, close);
  const pictures = await taughtPhotos(session, taught, close).catch(complain);
  const answer = await dialog(name, [
    facts(taught, waiting),
    h("div", { class: "field" }, h("label", { for: "rename-to" }, "Name"), input,
      taught && h("p", { class: "soft small" }, "Another name needs no new lesson.")),
    fresh,
    pictures,
    h("div", { class: "row" },
      waiting.length > 0 && h("button", { type: "button", onclick: () => close("remove") }, `Remove ${waiting.length > 1 ? "all " : ""}${plural(waiting.length, "new photo")}`),
      taught && h("button", { type: "button", class: "danger", onclick: () => close("forget") }, "Forget this class")),
  ], [{ value: "", text: "Close", kind: "quiet", focus: true }, { value: "rename", text: "Save the name", kind: "primary" }]);
  try {
    if (answer === "rename") await rename(session, name, input.value.trim(), taught, waiting);
    if (answer === "remove") await session.draft.remove(waiting.map(({ id }) => id));
    if (answer === "forget") await forget(session, name);
  } catch (error) {
    complain(error);
  }
}

function facts(taught, waiting) {
  const rows = [];
  if (taught) {
    rows.push(["Photos taught", taught.taught.toLocaleString("en")]);
    rows.push(["Held out to measure with", taught.exemplars.toLocaleString("en")]);
    rows.push(["Right on those", interval(taught.accuracy)]);
  }
  if (waiting.length) rows.push(["Waiting for the next lesson", waiting.length.toLocaleString("en")]);
  return h("dl", { class: "pairs" }, rows.map(([term, value]) => [h("dt", {}, term), h("dd", { class: "number" }, value)]));
}

export function interval(accuracy) {
  if (!accuracy) return "not measured yet";
  return `${percent(accuracy.value)} (${percent(accuracy.low)} to ${percent(accuracy.high)})`;
}

// The photos of a class, newest first, loaded a page at a time; nothing if no thumbnail is stored.
async function taughtPhotos(session, taught, close) {
  if (!taught?.thumbnails.length) return null;
  const others = session.model.classes.map(({ name }) => name).filter((name) => name !== taught.name).sort();
  const grid = new PhotoGrid({
    label: `Photos of ${taught.name}`, items: [], names: others, ask: "Move them to", newClass: false,
    assign: (chosen, name) => { close(""); move(session, chosen, name); },
    actions: [{ text: "Take back", run: (chosen) => { close(""); takeBack(session, chosen); } }],
  });
  return paged("Photos, the newest first", grid, (offset) => session.api.photos(taught.name, offset, PAGE));
}

// All photos of a class that wait for the next lesson; they can be moved or removed.
async function waitingPhotos(session, name, waiting, close) {
  if (!waiting.length) return null;
  const correct = (work) => { close(""); work.catch(complain); };
  const ids = (chosen) => chosen.map(({ key }) => key);
  const grid = new PhotoGrid({
    label: `New photos of ${name}`, items: [], names: session.classNames().filter((other) => other !== name), ask: "Move them to", newClass: false,
    assign: (chosen, to) => correct(session.draft.move(ids(chosen), to)),
    actions: [{ text: "Remove", run: (chosen) => correct(session.draft.remove(ids(chosen))) }],
  });
  const newest = waiting.toReversed().map(({ id }) => ({ id, thumbnail: session.api.draftThumbnail(id) }));
  return paged("For the next lesson, the newest first", grid, (offset) => ({ photos: newest.slice(offset, offset + PAGE), total: newest.length }));
}

// A grid that is filled a page at a time; fetch(offset) gives {photos: [{id, thumbnail}], total}.
async function paged(title, grid, fetch) {
  let shown = 0;
  const more = h("button", { type: "button", class: "small-button", onclick: () => show().catch(complain) });
  const show = async () => {
    more.disabled = true;
    const { photos, total } = await fetch(shown);
    grid.append(photos.map(({ id, thumbnail }, i) => ({ key: id, url: thumbnail, title: `photo ${shown + i + 1}`, caption: false })));
    shown += photos.length;
    more.disabled = false;
    more.hidden = shown >= total;
    more.textContent = `Show ${Math.min(PAGE, total - shown)} more of ${plural(total, "photo")}`;
  };
  await show();
  grid.box.after(more);
  return h("div", { class: "stack" }, h("h3", {}, title), grid.element);
}

async function rename(session, name, to, taught, waiting) {
  if (!to || to === name) return;
  if (taught) {
    await session.api.rename(name, to);
    toast(`${name} is called ${to} now.`);
  }
  if (waiting.length) await session.draft.move(waiting.map(({ id }) => id), to);
  await session.refresh();
}

async function forget(session, name) {
  const sure = await confirm(`Forget ${name}?`,
    "Its photos, samples and name are taken out of the version in use. History can bring it back, because older versions still have it.",
    `Forget ${name}`, "danger");
  if (!sure) return;
  await session.api.forget(name, false);
  await session.refresh();
  session.dispatchEvent(new Event("ended"));
  toast(`${name} is forgotten.`, { action: "Undo", run: () => session.undo().catch(complain) });
}
