// Photos to choose from: click, Shift-click and Ctrl-click, or arrows, Shift and Space; 1 to 9 name what is chosen.

import { h, plural } from "./dom.js";
import { namer } from "./namer.js";

export class PhotoGrid {
  // items: [{key, url, title, note, group, caption}]; assign(items, name); actions: [{text, run(items)}]
  constructor({ label, items, names, assign, actions = [], opened, ask, newClass = true }) {
    const groups = grouped(items);
    this.items = groups.flat();
    this.chosen = new Set();
    this.anchor = 0;
    this.assign = assign;
    this.options = this.items.map((item, i) => this.#option(item, i));
    const optionOf = new Map(this.items.map((item, i) => [item, this.options[i]]));
    const rows = groups.map((group) => (group.length < 2 ? optionOf.get(group[0])
      : h("div", { class: "photo-group", role: "group", "aria-label": `${group.length} photos that look alike` },
        h("span", { class: "photo-group-name", "aria-hidden": "true" }, `${group.length} that look alike`), group.map((item) => optionOf.get(item)))));
    this.box = h("div", { class: "photo-grid", role: "listbox", "aria-label": label, "aria-multiselectable": "true", onkeydown: (event) => this.#key(event) }, rows);
    this.namer = namer({ names, ask, newClass, given: (name) => this.#give(name) });
    this.count = h("p", { class: "small", "aria-live": "polite" });
    this.actions = actions.map(({ text, run, kind }) => h("button", { type: "button", class: `small-button ${kind ?? ""}`, onclick: () => run(this.selected()) }, text));
    this.alike = groups.some((group) => group.length > 1) && h("button", { type: "button", class: "small-button", onclick: () => this.#chooseAlike() }, "Choose those alike");
    this.all = h("button", { type: "button", class: "small-button quiet", onclick: () => this.#chooseAll() }, "Choose all");
    this.open = opened;
    this.toolbar = h("div", { class: "grid-toolbar" }, h("div", { class: "row" }, this.count, this.all, this.alike, this.actions), this.namer.element);
    this.element = h("div", { class: "stack" }, this.box, this.toolbar);
    this.#show();
  }

  // More items behind the others; they belong to no group.
  append(items) {
    const options = items.map((item, i) => this.#option(item, this.items.length + i));
    this.items.push(...items);
    this.options.push(...options);
    this.box.append(...options);
    this.#show();
  }

  selected() { return this.items.filter((item) => this.chosen.has(item.key)); }

  #option(item, i) {
    return h("div", {
      class: "photo", role: "option", tabindex: i ? "-1" : "0", "aria-selected": "false", "aria-label": [item.title, item.note].filter(Boolean).join(", "),
      onclick: (event) => this.#click(i, event),
      ondblclick: () => this.open?.(item),
      onfocus: () => this.#focus(i),
    },
    h("span", { class: "thumb" }, item.url ? h("img", { src: item.url, alt: "", loading: "lazy" }) : h("span", { class: "no-picture" }, "no picture kept")),
    item.caption !== false && h("span", { class: "photo-title" }, item.title),
    item.note && h("span", { class: "photo-note" }, item.note));
  }

  #focus(i) {
    this.options.forEach((option, j) => { option.tabIndex = i === j ? 0 : -1; });
    this.at = i;
  }

  #click(i, event) {
    if (event.shiftKey) this.#range(this.anchor, i);
    else this.#toggle(i);
    this.#show();
  }

  #toggle(i) {
    const { key } = this.items[i];
    if (!this.chosen.delete(key)) this.chosen.add(key);
    this.anchor = i;
  }

  #range(from, to) {
    for (let i = Math.min(from, to); i <= Math.max(from, to); i++) this.chosen.add(this.items[i].key);
  }

  #chooseAll() {
    if (this.chosen.size === this.items.length) this.chosen.clear();
    else this.#range(0, this.items.length - 1);
    this.#show();
  }

  #chooseAlike() {
    const groups = new Set(this.selected().map(({ group }) => group));
    for (const item of this.items) if (item.group !== null && groups.has(item.group)) this.chosen.add(item.key);
    this.#show();
  }

  #columns() {
    const first = this.options[0]?.offsetTop;
    const n = this.options.findIndex((option) => option.offsetTop > first);
    return n < 0 ? this.options.length : n;
  }

  #key(event) {
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.#columns(), ArrowUp: -this.#columns() };
    const at = this.at ?? 0;
    if (event.key in steps) {
      const next = Math.min(this.items.length - 1, Math.max(0, at + steps[event.key]));
      if (event.shiftKey) this.#range(this.chosen.size ? this.anchor : at, next);
      this.options[next].focus();
    } else if (event.key === " ") this.#toggle(at);
    else if (event.key === "Enter" && this.open) this.open(this.items[at]);
    else if (event.key === "a" && (event.ctrlKey || event.metaKey)) this.#chooseAll();
    else if (/^[1-9]$/.test(event.key)) { this.namer.pressed(Number(event.key)); }
    else return;
    event.preventDefault();
    event.stopPropagation();
    this.#show();
  }

  #give(name) {
    const items = this.chosen.size ? this.selected() : this.items.length === 1 ? this.items : [this.items[this.at ?? -1]].filter(Boolean);
    if (items.length) this.assign(items, name);
  }

  #show() {
    this.options.forEach((option, i) => option.setAttribute("aria-selected", String(this.chosen.has(this.items[i].key))));
    const n = this.chosen.size;
    this.count.textContent = n ? `${plural(n, "photo")} chosen` : "Click photos to choose them; hold Shift to choose all between.";
    for (const button of [this.alike, ...this.actions]) if (button) button.disabled = n === 0;
    this.all.textContent = n && n === this.items.length ? "Choose none" : "Choose all";
    this.namer.enable(n > 0 || this.items.length === 1);
  }
}

// Items of the same group side by side, in the order in which the first of each comes.
function grouped(items) {
  const groups = new Map();
  for (const item of items) {
    const key = item.group ?? Symbol("alone");
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(item);
  }
  return [...groups.values()];
}

export function emptyState(title, sentence, picture, action) {
  return h("div", { class: "empty" }, picture, h("h2", {}, title), h("p", {}, sentence), action);
}

