// @ts-check
/** The units that wait, in the order of planning, each with its reason. */

import {duration, h, link, nameOf, plural, shown} from "./dom.js";
import {now} from "./store.js";
import {fetchedView} from "./view.js";

const SHOWN = 200;

/** @returns {import("./app.js").View} */
export function waiting(/** @type {HTMLElement} */ place) {
  return fetchedView(place, "Waiting", "waiting", {}, content, "");
}

function content(/** @type {any[]} */ units) {
  if (!units.length) {
    return [h("h1", {}, "Nothing waits"), h("p.quiet", {}, "Every gang and pod has its GPUs.")];
  }
  const gangs = units.filter(unit => unit.kind === "gang").length, pods = units.length - gangs;
  const words = [gangs && plural(gangs, "gang"), pods && plural(pods, "pod")].filter(Boolean);
  return [
    h("h1", {}, `${words.join(" and ")} ${units.length === 1 ? "waits" : "wait"}`),
    h("p.quiet", {}, "In the order of planning: priority, then age. "
      + "The reasons are those of the planner on the state that is shown."),
    h("ol.queue", {}, units.slice(0, SHOWN).map(row)),
    units.length > SHOWN ? h("p.quiet", {}, `${plural(units.length - SHOWN, "more unit")} after these.`)
      : null,
  ];
}

function row(/** @type {any} */ unit, /** @type {number} */ number) {
  const fits = unit.reason.startsWith("It fits now");
  const since = Date.parse(unit.since) / 1000;
  const [words, kind] = unit.never ? ["✕ never fits", "bad"] : fits ? ["✓ fits now", "good"] : ["waits", "quiet"];
  return h("li.card.unit-row", {}, h("span.number", {"aria-hidden": "true"}, number + 1),
    h("div", {},
      h("div.head", {}, h("h3", {}, h("a", {href: link(unit.kind, unit.namespace, unit.name),
        "data-key": `${unit.namespace}/${unit.name}`}, nameOf(unit.name))),
      h("span.quiet.small", {}, unit.kind === "gang" ? `gang, ${unit.pods} waiting, ${unit.asks} each`
        : `pod, ${unit.asks}`, " · namespace ", nameOf(unit.namespace)),
      h(`span.status.${kind}`, {}, words)),
      h("p", {}, shown(unit.reason)),
      unit.reserved ? h("p.reserved", {}, `${plural(unit.reserved, "node")} ${unit.reserved === 1 ? "is" : "are"} `
        + "reserved for it, since it has waited so long: others of its priority or below go elsewhere.") : null),
    h("span.age", {}, Number.isFinite(since) ? duration(now() - since) : ""));
}
