// Short messages at the bottom of the page, read out by screen readers.

import { $, h } from "./dom.js";

const SECONDS = 7;

export function toast(sentence, { action, run, bad = false } = {}) {
  const close = () => element.remove();
  const element = h("div", { class: bad ? "toast bad" : "toast", "data-action": action ?? "" },
    h("p", {}, sentence),
    action && h("button", { type: "button", onclick: () => { close(); run(); } }, action),
    h("button", { type: "button", class: "icon-button", "aria-label": "Close this message", onclick: close }, "×"));
  const place = $("#toasts");
  const replaced = (earlier) => (action ? earlier.dataset.action === action : earlier.firstElementChild.textContent === sentence);
  for (const earlier of [...place.children]) if (replaced(earlier)) earlier.remove();
  while (place.childElementCount > 2) place.firstElementChild.remove();
  place.append(element);
  const timer = () => setTimeout(() => (element.matches(":hover, :focus-within") ? timer() : close()), SECONDS * 1000);
  timer();
}

export const complain = (error) => toast(error.message ?? String(error), { bad: true });
