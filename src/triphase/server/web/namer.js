// "It is ...": one button for each class, numbered for the keys 1 to 9, and a field for a class that is new.

import { h } from "./dom.js";

const NUMBERED = 9;
const SHOWN = 30;

export function namer({ names, ask, given, newClass = true }) {
  const input = h("input", { type: "text", autocomplete: "off", spellcheck: "false", maxlength: "100", placeholder: "a new class", "aria-label": "Name of a new class" });
  const submit = (event) => {
    event.preventDefault();
    const name = input.value.trim();
    if (!name) { input.focus(); return; }
    input.value = "";
    given(name);
  };
  const shown = names.slice(0, SHOWN);
  const chips = shown.map((name, i) => h("button", { type: "button", class: "chip", onclick: () => given(name) },
    i < NUMBERED && h("kbd", { "aria-hidden": "true" }, String(i + 1)), h("span", {}, name)));
  const form = h("form", { class: "new-class", onsubmit: submit }, input, h("button", { class: "small-button" }, "Make it a class"));
  return {
    element: h("div", { class: "namer" }, h("p", { class: "label" }, ask), h("div", { class: "chips" }, chips), newClass && form),
    pressed: (number) => { if (number <= Math.min(names.length, NUMBERED)) given(names[number - 1]); },
    // Highlight the answered or closest class.
    suggest: (name) => chips.forEach((chip, i) => chip.classList.toggle("suggested", shown[i] === name)),
  };
}
