import { replace } from "./dom.js";
import { heading } from "./heading.js";

export async function showInbox(session, place) {
  replace(place, heading("Inbox", "Nothing is kept."));
}
