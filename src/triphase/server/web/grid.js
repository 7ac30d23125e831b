// Photos to choose from: click, Shift-click and Ctrl-click, or arrows, Shift and Space; 1 to 9 name what is chosen.

import { h, picture, plural } from "./dom.js";
import { namer } from "./namer.js";

const TOUCH = matchMedia("(hover: none)").matches;

export class PhotoGrid {
  // items: [{key, url, title, note, group, caption}]; assign(items, name); actions: [{text, run(items)}]
  constructor({ label, items, names, assign, actions = [], opened, ask, newClass = true }) {
    const groups = grouped(items);
    this.label = label;
    this.items = groups.flat();
    this.chosen = new Set();
    this.anchor = 0;
    this.assign = assign;
    this.open = opened;
    this.options = this.items.map((item, i) => this.#option(item, i));
    this.namer = namer({ names, ask, newClass, given: (name) => this.#give(name) });
    this.count = h("p", { class: "small", "aria-live": "polite" });
    this.actions = actions.map(({ text, run, kind }) => h("button", { type: "button", class: `small-button ${kind ?? ""}`, onclick: () => run(this.selected()) }, text));
    this.all = h("button", { type: "button", class: "small-button quiet", onclick: () => this.#chooseAll() }, "Choose all");
    this.none = h("button", { type: "button", class: "small-button quiet", onclick: () => this.#chooseNone() }, "Choose none");
    this.hint = h("div", { class: "row spread grid-hint" }, h("p", { class: "soft small" }, TOUCH ? "Tap photos to choose them." : "Click photos to choose them; hold Shift to choose all between."), this.all);
    this.box = h("div", { class: "photo-grid", onkeydown: (event) => this.#key(event) }, this.#lists(groups));
    this.toolbar = h("div", { class: "grid-toolbar" }, h("div", { class: "row" }, this.count, this.actions, this.none), this.namer.element);
    this.element = h("div", { class: "stack" }, this.hint, this.box, this.toolbar);
    this.#show();
  }

  // Append items; they belong to no group.
  append(items) {
    const options = items.map((item, i) => this.#option(item, this.items.length + i));
    this.items.push(...items);
    this.options.push(...options);
    const last = this.box.lastElementChild;
    if (last?.classList.contains("photo-list")) last.append(...options);
    else this.box.append(this.#list(options));
    this.#show();
  }

  // The selected items; a single photo counts as selected.
  selected() { return this.items.length === 1 ? this.items : this.items.filter((item) => this.chosen.has(item.key)); }

  // Replace the note on items that are done, and deselect them.
  mark(items, note) {
    for (const item of items) {
      const option = this.options[this.items.indexOf(item)];
      option.classList.add("done");
      option.setAttribute("aria-label", `${item.title}, ${note}`);
      option.querySelector(".photo-note").textContent = note;
      this.chosen.delete(item.key);
    }
    this.#show();
  }

  // Each group has a heading with a button that selects it; items without a group follow in one list, in their order.
  #lists(groups) {
    const optionOf = new Map(this.items.map((item, i) => [item, this.options[i]]));
    const lists = [];
    let alone = null;
    for (const group of groups) {
      if (group.length > 1) {
        lists.push(this.#group(group, group.map((item) => optionOf.get(item))));
        alone = null;
      } else if (alone) alone.append(optionOf.get(group[0]));
      else lists.push(alone = this.#list([optionOf.get(group[0])]));
    }
    return lists;
  }

  #list(options, label = this.label) {
    return h("div", { class: "photo-list", role: "listbox", "aria-label": label, "aria-multiselectable": "true" }, options);
  }

  #group(items, options) {
    const alike = `${items.length} that look alike`;
    const choose = () => {
      for (const { key } of items) this.chosen.add(key);
      this.anchor = this.items.indexOf(items[0]);
      this.#show();
    };
    return h("div", { class: "photo-group" },
      h("div", { class: "photo-group-head" }, h("p", { class: "small" }, alike),
        h("button", { type: "button", class: "small-button", "aria-label": `Choose the ${alike}`, onclick: choose }, `Choose these ${items.length}`)),
      this.#list(options, `${this.label}: ${alike}`));
  }

  #option(item, i) {
    return h("div", {
      class: "photo", role: "option", tabindex: i ? "-1" : "0", "aria-selected": "false", "aria-label": [item.title, item.note].filter(Boolean).join(", "),
      onclick: (event) => this.#click(i, event),
      ondblclick: () => this.open?.(item),
      onfocus: () => this.#focus(i),
    },
    h("span", { class: "thumb" }, item.url ? picture(item.url, "", "cannot be shown") : h("span", { class: "no-picture" }, "no picture kept")),
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
    this.#range(0, this.items.length - 1);
    this.#show();
  }

  #chooseNone() {
    this.chosen.clear();
    this.#show();
  }

  // The photo above (-1) or below (1) one, in whichever list it is.
  #across(at, direction) {
    const here = this.options[at].getBoundingClientRect();
    const far = this.options.map((option) => {
      const there = option.getBoundingClientRect();
      const rows = direction * (there.top - here.top);
      return rows < here.height / 2 ? Infinity : 10 * rows + Math.abs(there.left - here.left);
    });
    const nearest = Math.min(...far);
    return nearest === Infinity ? at : far.indexOf(nearest);
  }

  #step(key, at) {
    if (key === "ArrowDown" || key === "ArrowUp") return this.#across(at, key === "ArrowDown" ? 1 : -1);
    return Math.min(this.items.length - 1, Math.max(0, at + (key === "ArrowRight" ? 1 : -1)));
  }

  #key(event) {
    if (!event.target.matches(".photo")) return;
    const at = this.at ?? 0;
    if (/^Arrow/.test(event.key)) {
      const next = this.#step(event.key, at);
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
    const chosen = this.selected();
    const items = chosen.length ? chosen : [this.items[this.at ?? -1]].filter(Boolean);
    if (items.length) this.assign(items, name);
  }

  // The actions appear once something is selected, and stay visible while the photos scroll.
  #show() {
    this.options.forEach((option, i) => option.setAttribute("aria-selected", String(this.chosen.has(this.items[i].key))));
    const n = this.chosen.size;
    this.hint.hidden = this.items.length < 2;
    this.toolbar.hidden = !n && this.items.length > 1;
    this.count.textContent = n ? `${plural(n, "photo")} chosen` : "";
    this.count.hidden = this.none.hidden = !n;
    this.all.disabled = n === this.items.length;
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
