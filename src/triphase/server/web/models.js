// Which model: the only one, one of several, or a new one.

import * as api from "./api.js";
import { $, dialog, h, replace } from "./dom.js";
import { complain } from "./toast.js";

const NEW = "\u0000"; // no model has this name

// The name of the model that the page shows; if there is none, one is created first.
export async function chooseModel() {
  const { models, can_add: canAdd } = await api.models();
  if (!models.length) return open(await makeModel(true));
  const wanted = new URLSearchParams(location.search).get("model");
  const missing = wanted && !models.some((model) => model.name === wanted);
  const name = missing ? "" : wanted || models[0].name;
  const choice = $("#model-choice");
  choice.hidden = models.length < 2 && !canAdd && !missing;
  $("#model-name").hidden = !choice.hidden;
  $("#model-name").textContent = name;
  replace(choice, missing && h("option", { value: "" }, "Choose a model"),
    models.map((model) => h("option", { value: model.name, selected: model.name === name }, model.name)),
    canAdd && h("option", { value: NEW }, "New model"));
  choice.onchange = async () => {
    const chosen = choice.value === NEW ? await makeModel(false).catch(complain) : choice.value;
    if (chosen) open(chosen);
    else choice.value = name;
  };
  if (missing) throw new Error(`There is no model ${wanted} here. Choose one at the top of the page.`);
  return name;
}

function open(name) {
  location.search = `?model=${encodeURIComponent(name)}`;
  return new Promise(() => {}); // the page is loaded again
}

async function makeModel(first) {
  const input = h("input", { type: "text", id: "new-model", autocomplete: "off", autofocus: true });
  const message = h("p", { class: "message", role: "alert" });
  const field = h("div", { class: "field" }, h("label", { for: "new-model" }, "Name"), input,
    h("p", { class: "soft small" }, "What it is to tell apart: flowers, birds at the feeder, parts of a machine."), message);
  for (;;) {
    const answer = await dialog(first ? "Name your first model" : "A new model", [field],
      [...(first ? [] : [{ value: "", text: "Cancel", kind: "quiet" }]), { value: "make", text: "Make it", kind: "primary" }]);
    const name = input.value.trim();
    if (answer && name) {
      try {
        return (await api.makeModel(name)).name;
      } catch (error) {
        message.textContent = error.message; // shown again with the field
      }
    } else if (!first) return null;
  }
}
