// @ts-check
/** The GPUs that the pods of each namespace hold, and their GPU-hours in the last hour. */

import {clock} from "./dom.js";
import {h, nameOf, plural} from "./elements.js";
import {fetchedView} from "./view.js";

/** @returns {import("./app.js").View} */
export function namespaces(/** @type {HTMLElement} */ place) {
  return fetchedView(place, "Namespaces", "namespaces", {}, view => content(view, 0), "", content);
}

/** Make the content; `at`: an earlier moment [s since 1970], or 0. */
function content(/** @type {any} */ view, /** @type {number} */ at) {
  const most = Math.max(...view.rows.map((/** @type {any} */ row) => row.gpus), 1);
  const heads = ["Namespace", "GPUs", "", "Shares", "Pods", "Nodes", "GPU-hours"];
  return [
    h("h1", {}, plural(view.rows.length, "namespace"), at ? ` at ${clock(at)}` : ""),
    h("p.quiet", {}, `GPU-hours are those since ${clock(view.since)}${at ? ` until ${clock(at)}` : ""}, of whole GPUs. `
      + "The last hour is kept, less in a cluster with many changes."
      + (at ? " Shares of GPUs are not kept." : "")),
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
