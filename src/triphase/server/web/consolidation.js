// Learn overnight: train the model again on everything that is stored.

import { duration, h, moment, plural } from "./dom.js";
import { undo } from "./outcome.js";
import { complain } from "./toast.js";

const MINUTES = [10, 30, 60, 240, 480];
const USUAL = ""; // as many passes as are usual, however long they take

export function consolidationPanel(session) {
  const { lesson, model } = session;
  const stopped = session.unfinished.some(({ state }) => state === "stopped");
  const busy = lesson?.state === "running" || stopped;
  const minutes = h("select", { id: "consolidate-minutes", disabled: busy },
    h("option", { value: USUAL }, "as long as it usually takes"),
    MINUTES.map((n) => h("option", { value: n }, `at most ${duration(60 * n)}`)));
  const begin = h("button", { type: "button", disabled: busy || model.classes.length < 2, onclick: async () => {
    begin.disabled = true;
    try {
      await session.consolidate(minutes.value === USUAL ? null : Number(minutes.value));
      location.hash = "#teach"; // where a lesson is watched and stopped
    } catch (error) {
      begin.disabled = false;
      complain(error);
    }
  } }, "Consolidate now");
  return h("div", { class: "panel stack" }, h("h2", {}, "Learn overnight"),
    h("p", { class: "soft" }, "Consolidating trains it anew on everything that it has stored; no photo is needed. The result is used only if held-out photos say that it is better."),
    h("div", { class: "field" }, h("label", { for: "consolidate-minutes" }, "How long"), minutes),
    h("div", { class: "row" }, begin, why(lesson, stopped, model)),
    lastTime(lesson));
}

function why(lesson, stopped, model) {
  if (lesson?.state === "running") return h("p", { class: "soft small" }, lesson.kind === "consolidation" ? "It is running." : "A lesson is running.", " ", h("a", { href: "#teach" }, "Watch it"));
  if (stopped) return h("p", { class: "soft small" }, "Something was stopped. First ", h("a", { href: "#teach" }, "resume or discard it"), ".");
  return model.classes.length < 2 && h("p", { class: "soft small" }, "Teach a second class first.");
}

// Shown when the page is opened again, so that the result is seen even if the page was closed.
function lastTime(lesson) {
  if (lesson?.kind !== "consolidation" || !["done", "failed"].includes(lesson.state)) return null;
  return h("p", { class: "small" }, h("strong", {}, `Last time, ${moment(lesson.ended)}: `), lesson.outcome?.verdict ?? lesson.error);
}

export const consolidationTitle = ({ published, version }) => (published ? `Consolidated. Version ${version} is in use` : "Consolidated, and it got no better");

// The result: the verdict on held-out photos, and a button to take it back.
export function consolidationView(outcome, session, close) {
  const facts = [];
  if (outcome.epochs) facts.push(`Trained ${plural(outcome.epochs, "time")} on ${plural(outcome.samples, "stored photo")} in ${duration(outcome.seconds)}.`);
  return h("div", { class: "panel outcome" },
    h("div", { class: "panel-head" },
      h("h2", {}, consolidationTitle(outcome)),
      h("button", { type: "button", class: "quiet small-button", onclick: close }, "Close")),
    h("p", {}, outcome.verdict),
    [...facts, ...(outcome.notes ?? [])].map((sentence) => h("p", { class: "soft small" }, sentence)),
    outcome.published && h("div", { class: "row" },
      h("a", { class: "button primary", href: "#try" }, "Try it"),
      h("button", { type: "button", onclick: () => undo(session) }, "Take it back")));
}
