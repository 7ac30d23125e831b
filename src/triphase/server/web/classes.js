// One class: rename it, forget it, and what is known about it.

import { confirm, dialog, h, percent, plural } from "./dom.js";
import { complain, toast } from "./toast.js";

export async function openClass(session, name) {
  const taught = session.model.classes.find((entry) => entry.name === name);
  const waiting = session.draft.classes().get(name) ?? [];
  const input = h("input", { type: "text", id: "rename-to", value: name, autocomplete: "off", spellcheck: "false" });
  const answer = await dialog(name, [
    facts(taught, waiting),
    h("div", { class: "field" }, h("label", { for: "rename-to" }, "Name"), input,
      h("p", { class: "soft small" }, "Another name needs no new lesson.")),
    h("div", { class: "row" },
      waiting.length > 0 && h("button", { value: "remove" }, `Remove ${plural(waiting.length, "new photo")}`),
      taught && h("button", { value: "forget", class: "danger" }, "Forget this class")),
  ], [{ value: "", text: "Close", kind: "quiet" }, { value: "rename", text: "Save the name", kind: "primary" }]);
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
  if (!accuracy || accuracy.value === null) return "not measured yet";
  return `${percent(accuracy.value)} (${percent(accuracy.low)} to ${percent(accuracy.high)})`;
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
  toast(`${name} is forgotten.`, { action: "Undo", run: async () => { await session.api.undo().catch(complain); await session.refresh(); } });
}
