// @ts-check
/** The GPUs that the pods of each namespace hold, and held since the page is served. */

import {clock, h, nameOf, plural} from "./dom.js";
import {fetchedView} from "./view.js";

/** @returns {import("./app.js").View} */
export function namespaces(/** @type {HTMLElement} */ place) {
  return fetchedView(place, "Namespaces", "namespaces", {}, content, "");
}

function content(/** @type {any} */ view) {
  const most = Math.max(...view.rows.map((/** @type {any} */ row) => row.gpus), 1);
  const heads = ["Namespace", "GPUs", "", "Shares", "Pods", "Nodes", "GPU-hours"];
  return [
    h("h1", {}, plural(view.rows.length, "namespace")),
    h("p.quiet", {}, `GPU-hours are counted since ${clock(view.since)}, when this page was first served; `
      + "they are of whole GPUs."),
    h("div.card", {}, h("table.usage", {}, h("thead", {}, h("tr", {}, heads.map(text =>
      text ? h("th", {scope: "col"}, text) : h("td.level")))), h("tbody", {}, view.rows.map((/** @type {any} */ row) => {
      const level = h("i");
      level.style.width = `${(100 * row.gpus / most).toFixed(1)}%`;
      const shares = [row.memory && `${row.memory} GiB`, row.replicas && plural(row.replicas, "replica")];
      return h("tr", {}, h("th", {scope: "row"}, nameOf(row.namespace)), h("td.figure", {}, row.gpus),
        h("td.level", {"aria-hidden": "true"}, level), h("td", {}, shares.filter(Boolean).join(", ") || "–"),
        h("td.figure", {}, row.pods), h("td.figure", {}, row.nodes), h("td.figure", {}, row.hours.toFixed(1)));
    })))),
  ];
}
