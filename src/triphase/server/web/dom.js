// Elements from names, attributes and children. Text is always text: nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";

export function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "width%") element.style.width = `${value}%`;
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// A picture, or words in its place if the browser cannot show it.
export const picture = (src, alt, otherwise = "no picture kept") =>
  h("img", { src, alt, loading: "lazy", onerror: (event) => event.target.replaceWith(h("span", { class: "no-picture" }, otherwise)) });

export const $ = (selector, root = document) => root.querySelector(selector);

export function replace(element, ...children) {
  element.replaceChildren(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
}

export function icon(...paths) {
  return svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, paths.map((d) => svg("path", { d })));
}

export const plural = (n, one, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
export const percent = (share) => (share === null || share === undefined ? "–" : `${Math.round(share * 100)}\u00a0%`);

export function list(words) {
  if (words.length < 2) return words.join("");
  return `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}

export function duration(seconds) {
  if (seconds < 1) return "less than a second";
  if (seconds < 90) return plural(Math.round(seconds), "second");
  if (seconds < 5400) return plural(Math.round(seconds / 60), "minute");
  return plural(Math.round(seconds / 3600), "hour");
}

export const moment = (time) => new Date(time).toLocaleString(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

export function bytes(n) {
  if (n < 1e6) return `${Math.max(n ? 1 : 0, Math.round(n / 1e3))} KB`;
  return n < 1e9 ? `${(n / 1e6).toFixed(n < 1e7 ? 1 : 0)} MB` : `${(n / 1e9).toFixed(1)} GB`;
}

// A tab list with one panel for each tab: arrow keys move, as WAI-ARIA describes it.
export function tabs(label, entries, chosen = () => {}) {
  const buttons = entries.map(({ id, title, panel }, i) => {
    panel.id = `${id}-panel`;
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", `${id}-tab`);
    return h("button", {
      type: "button", role: "tab", id: `${id}-tab`, "aria-controls": `${id}-panel`,
      onclick: () => choose(i),
      onkeydown: (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        event.preventDefault();
        choose((i + step + entries.length) % entries.length, true);
      },
    }, title);
  });
  function choose(index, focus = false) {
    entries.forEach(({ panel }, i) => {
      panel.hidden = i !== index;
      buttons[i].setAttribute("aria-selected", String(i === index));
      buttons[i].tabIndex = i === index ? 0 : -1;
    });
    if (focus) buttons[index].focus();
    chosen(entries[index].id);
  }
  const bar = h("div", { class: "tabs", role: "tablist", "aria-label": label }, buttons);
  return { bar, choose: (id) => choose(entries.findIndex((entry) => entry.id === id)) };
}

// A modal dialog that is removed when it closes; resolves with the value of the button that closed it.
export function dialog(title, body, actions) {
  const id = `dialog-${Math.random().toString(36).slice(2)}`;
  return new Promise((resolve) => {
    const enter = (event) => { // in a field Enter means the main button, not the first one
      if (event.key !== "Enter" || !event.target.matches("input:not([type=file])")) return;
      event.preventDefault();
      element.querySelector(".dialog-actions .primary")?.click();
    };
    const element = h("dialog", { "aria-labelledby": id, onkeydown: enter, onclose: () => { element.remove(); resolve(element.returnValue); } },
      h("form", { method: "dialog" },
        h("div", { class: "dialog-body" }, h("h2", { id }, title), body),
        h("div", { class: "dialog-actions" }, actions.map(({ value, text, kind, focus, disabled }) =>
          h("button", { value, class: kind ?? "", autofocus: focus ?? false, disabled: disabled ?? false }, text)))));
    document.body.append(element);
    element.showModal();
  });
}

export function confirm(title, sentence, yes, kind = "primary") {
  return dialog(title, [h("p", {}, sentence)], [
    { value: "", text: "Cancel", kind: "quiet" },
    { value: "yes", text: yes, kind, focus: true },
  ]).then((value) => value === "yes");
}
