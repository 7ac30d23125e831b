// The shell: which model, which area, and what every area needs.

import * as api from "./api.js";
import { $, h, replace } from "./dom.js";
import { listen } from "./drop.js";
import { History } from "./history.js";
import { chooseModel } from "./models.js";
import { Review } from "./review.js";
import { Session } from "./session.js";
import { Teach } from "./teach.js";
import { Try } from "./try.js";

const RETRY = 1500; // milliseconds until the server is asked again whether it is there

async function start() {
  const session = new Session(await chooseModel());
  const teach = new Teach(session);
  const areas = {
    teach,
    try: new Try(session, () => { location.hash = "#teach"; teach.teach(); }),
    review: new Review(session),
    history: new History(session),
  };
  session.addEventListener("model", () => {
    $("#review-badge").hidden = !session.model.inbox;
    replace($("#review-badge"), String(session.model.inbox), h("span", { class: "visually-hidden" }, " photos wait"));
  });
  await session.load();
  const show = () => showArea(areas, session);
  window.addEventListener("hashchange", show);
  show();
  listen($("#drop-cover"), (found) => {
    const area = location.hash === "#try" ? areas.try : areas.teach;
    if (area === areas.teach) location.hash = "#teach";
    area.receive(found);
  }, () => { $("#drop-use").textContent = current() === "try" ? "Each photo gets an answer" : "Photos, a folder with a subfolder for each class, or a zip of it"; });
  document.addEventListener("keydown", (event) => {
    if (event.target.matches("input, select, textarea, dialog *") || event.ctrlKey || event.metaKey || event.altKey) return;
    areas[current()].key?.(event);
  });
  api.connection.addEventListener("found", () => session.load().catch(() => {}));
  const check = () => { if (!document.hidden) session.check().catch(() => {}); };
  api.connection.addEventListener("outdated", check);
  window.addEventListener("focus", check);
  document.addEventListener("visibilitychange", check);
}

const current = () => (["try", "review", "history"].find((name) => location.hash === `#${name}`) ?? "teach");

function showArea(areas, session) {
  const name = current();
  for (const [other, area] of Object.entries(areas)) {
    if (other !== name && !$(`#${other}`).hidden) area.leave?.();
    $(`#${other}`).hidden = other !== name;
  }
  for (const link of document.querySelectorAll(".areas a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${$(`#${name}-title`).textContent} · ${session.name} · triphase`;
  window.scrollTo(0, 0);
  areas[name].enter?.();
  areas[name].render();
  areas.teach.lesson.render();
}

// While the server cannot be used, a banner says why, and the server is asked again and again.
function watchConnection() {
  let asking = null;
  const show = (banner) => { for (const id of ["#offline", "#restarted"]) $(id).hidden = id !== banner; };
  const trouble = (banner) => {
    show(banner);
    asking ??= setInterval(async () => {
      try {
        await api.models();
      } catch {
        return;
      }
      clearInterval(asking);
      asking = null;
      show(null);
      api.connection.dispatchEvent(new Event("found"));
    }, RETRY);
  };
  api.connection.addEventListener("lost", () => trouble("#offline"));
  api.connection.addEventListener("unauthorized", () => trouble("#restarted"));
}

watchConnection();
start().catch((error) => {
  if ([0, 401].includes(error.status)) { // a banner says so already
    api.connection.addEventListener("found", () => location.reload());
    return;
  }
  $("#failure").hidden = false;
  $("#failure").textContent = error.message;
});
