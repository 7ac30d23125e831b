// History: accuracy over the lessons, every version with the event that made it, and undo.

import { accuracyChart } from "./charts.js";
import { interval } from "./classes.js";
import { consolidationPanel } from "./consolidation.js";
import { $, bytes, confirm, h, icon, list, moment, percent, plural, replace } from "./dom.js";
import { emptyState } from "./grid.js";
import { undo } from "./outcome.js";
import { complain } from "./toast.js";

export class History {
  constructor(session) {
    this.session = session;
    this.body = $("#history-body");
    for (const what of ["ended", "lesson"]) session.addEventListener(what, () => { if (!$("#history").hidden) this.enter(); });
  }

  render() {}

  async enter() {
    const { model } = this.session;
    if (!model.version) {
      replace(this.body, emptyState("No lesson yet", "After the first lesson this is where you see how accurate the model became, and where you take a lesson back.",
        icon("M4 12a8 8 0 1 0 3-6.2", "M4 4v4h4", "M12 8v4l3 2"), h("a", { class: "button primary", href: "#teach" }, "Teach it something")));
      return;
    }
    try {
      this.#show(await this.session.api.versions(), model);
    } catch (error) {
      complain(error);
    }
  }

  #show({ version, undo_to: undoTo, kept, events: all }, model) {
    const events = all.filter((event, i) => !replaced(event, all[i + 1], kept));
    const points = events.filter((event) => event.after !== undefined && event.after !== null)
      .map((event) => ({ name: `v${event.version}`, accuracy: event.after, note: plural(event.images ?? 0, "photo") }));
    replace(this.body, h("div", { class: "history-columns" },
      h("div", { class: "panel" },
        h("div", { class: "panel-head" }, h("h2", {}, "Versions"), h("p", { class: "soft small" }, `${plural(kept.length, "version")} kept`)),
        h("ol", { class: "timeline" }, events.toReversed().map((event, i) => this.#event(event, i, version, kept, undoTo)))),
      h("div", { class: "panels" },
        h("div", { class: "panel" }, h("h2", {}, "Accuracy over the lessons"),
          points.length ? [accuracyChart(points), h("p", { class: "soft small" }, "Of the classes known before each lesson, on photos that were never trained on.")]
            : h("p", { class: "soft" }, "From the second lesson on, held-out photos show here what was kept and what was lost.")),
        consolidationPanel(this.session),
        this.#about(model))));
  }

  #event(event, i, version, kept, undoTo) {
    const inUse = i === 0 && event.version === version;
    return h("li", { class: inUse ? "in-use" : "" },
      h("div", { class: "panel-head" },
        h("h3", {}, what(event)),
        h("p", { class: "soft small number" }, `version ${event.version} · ${moment(event.time)}`)),
      facts(event).length > 0 && h("p", { class: "soft small" }, facts(event).join(" · ")),
      event.kept && h("p", { class: "soft small" }, state(event)),
      h("div", { class: "row" },
        inUse && h("span", { class: "tag good" }, "in use"),
        !kept.includes(event.version) && h("span", { class: "tag" }, "no longer kept"),
        inUse && undoTo !== null && h("button", { type: "button", class: "small-button", onclick: () => this.#undo(undoTo) }, event.event === "undone" ? "Go further back" : "Take back")));
  }

  async #undo(version) {
    const sure = await confirm(`Go back to version ${version}?`, "The model is then exactly as it was at that time, bit for bit. You can go further back the same way.", `Use version ${version}`);
    if (!sure) return;
    await undo(this.session);
  }

  #about(model) {
    const { memory } = model;
    const rows = [
      ["Classes", plural(model.classes.length, "class", "classes")],
      ["Photos taught", model.taught.toLocaleString("en")],
      ["Accuracy on held-out photos", interval(model.accuracy)],
      ["Stored for later lessons", `${plural(memory.samples, "sample")}, ${bytes(memory.bytes)}`],
      ["Network", `${model.backbone}, ${model.image_size} px`],
      ["On disk", bytes(model.bytes)],
    ];
    return h("div", { class: "panel" }, h("h2", {}, "The model"),
      h("dl", { class: "pairs" }, rows.map(([term, value]) => [h("dt", {}, term), h("dd", { class: "number" }, value)])),
      h("a", { class: "button", href: this.session.api.exportUrl, download: `${this.session.name}.zip` }, "Download the model"));
  }
}

// A quick version that the whole lesson has replaced.
const replaced = (event, next, kept) => event.event === "taught_quick" && next?.event === "taught" && !kept.includes(event.version);

function what(event) {
  const classes = Object.keys(event.classes ?? {});
  const named = classes.length ? list([...classes.slice(0, 4), ...(classes.length > 4 ? [`${classes.length - 4} more`] : [])]) : "";
  return {
    taught: () => `Taught ${named || plural(event.images ?? 0, "photo")}`,
    taught_quick: () => `Quick lesson of ${plural(event.images ?? 0, "photo")}`,
    renamed: () => (event.old && event.new ? `Renamed ${event.old} to ${event.new}` : "Renamed a class"),
    forgot: () => "Forgot a class",
    untaught: () => `Took back ${plural(event.images ?? 0, "photo")}`,
    moved: () => `Moved ${plural(event.images ?? 0, "photo")}${named && ` to ${named}`}`,
    consolidated: () => "Consolidated",
    saved: () => "Saved by a program",
    undone: () => `Went back to version ${event.version}`,
  }[event.event]?.() ?? event.event;
}

function facts(event) {
  const said = [];
  if (event.event === "taught" && event.images) said.push(plural(event.images, "photo"));
  if (event.after !== null && event.after !== undefined) said.push(`${event.event === "consolidated" ? "held-out photos" : "earlier classes"} ${percent(event.before)} before, ${percent(event.after)} after`);
  if (event.forced) said.push("published against the guard");
  return said;
}

// The model after the event: classes, photos, accuracy.
function state({ known_classes: classes, taught, accuracy }) {
  const said = `${plural(classes, "class", "classes")}, ${plural(taught, "photo")} in all`;
  return accuracy ? `${said}; ${percent(accuracy.value)} of ${plural(accuracy.n, "held-out photo")} right` : said;
}
