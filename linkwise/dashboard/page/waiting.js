// @ts-check
/** The units that wait, in the order of planning, each with its reason. */

import {clock, duration, link, preempted} from "./dom.js";
import {h, nameOf, plural, shown} from "./elements.js";
import {now, store} from "./store.js";
import {fetchedView} from "./view.js";

const SHOWN = 200;

/** @returns {import("./app.js").View} */
export function waiting(/** @type {HTMLElement} */ place) {
  const live = h("div"), past = h("div");
  place.append(live, past);
  const view = fetchedView(live, "Waiting", "waiting", {}, content, "");
  /** @type {unknown} */
  let drawn = null;
  return {...view, draw: () => {
    [live.hidden, past.hidden] = [store.past !== null, store.past === null];
    if (!store.past) view.draw();
    else if (drawn !== store.past) past.replaceChildren(...earlier(drawn = store.past));
  }};
}

/** Show what waited at an earlier moment; the reasons of the planner are not kept. */
function earlier(/** @type {NonNullable<typeof store.past>} */ {at, waiting: {count, first}}) {
  return [
    h("h1", {}, count ? `${plural(count, "unit")} waited` : "Nothing waited"),
    h("p.quiet", {}, `At ${clock(at)}, by priority, then age. Reasons are computed for the present alone.`),
    h("ol.queue", {}, first.map((unit, i) => row({...unit, reason: "", help: "", reserved: 0, preempts: []}, i, at))),
    count > first.length ? h("p.quiet", {}, `${plural(count - first.length, "more unit")} after these.`) : "",
  ];
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
    h("ol.queue", {}, units.slice(0, SHOWN).map((unit, i) => row(unit, i, now()))),
    units.length > SHOWN ? h("p.quiet", {}, `${plural(units.length - SHOWN, "more unit")} after these.`)
      : null,
  ];
}

function row(/** @type {any} */ unit, /** @type {number} */ number, /** @type {number} */ at) {
  const fits = unit.reason.startsWith("It fits now");
  const since = Date.parse(unit.since) / 1000;
  const [words, kind] = unit.never ? ["✕ never fits", "bad"] : fits ? ["✓ fits now", "good"] : ["waits", "quiet"];
  return h("li.card.unit-row", {}, h("span.number", {"aria-hidden": "true"}, number + 1),
    h("div", {},
      h("div.head", {}, h("h2", {}, h("a", {href: link(unit.kind, unit.namespace, unit.name),
        "data-key": `${unit.namespace}/${unit.name}`}, nameOf(unit.name))),
      h("span.quiet.small", {}, unit.kind === "gang" ? `gang, ${unit.pods} waiting, ${unit.asks} each`
        : `pod, ${unit.asks}`, " · namespace ", nameOf(unit.namespace)),
      h(`span.status.${kind}`, {}, words)),
      unit.reason ? h("p", {}, shown(unit.reason)) : null,
      unit.help ? h("p.would-help", {}, h("b", {}, "Would help: "), shown(unit.help)) : null,
      preempted(unit.preempts),
      unit.reserved ? h("p.reserved", {}, `${plural(unit.reserved, "node")} ${unit.reserved === 1 ? "is" : "are"} `
        + "reserved for it, since it has waited so long: others of its priority or below go elsewhere.") : null),
    h("span.age", {}, Number.isFinite(since) ? duration(at - since) : ""));
}
