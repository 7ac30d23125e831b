import { $, replace } from "./dom.js";
export class Review {
  constructor(session) { this.session = session; }
  render() { replace($("#review-body")); }
}
