// @ts-check
/** The map of all nodes with its totals; its choices are in the address. */

import {choices, choose} from "./address.js";
import {link} from "./dom.js";
import {h} from "./elements.js";
import {CONTROLS, USUAL, fleetMap} from "./map.js";
import {rows, store, totals} from "./store.js";

/** What is chosen: by the address, else the last choice of this page. */
const chosen = {...USUAL};

/** Take the choices of the address; where it has none, write the last ones into it. */
function restore() {
  const wanted = Object.entries(USUAL).map(([id, usual]) => {
    const value = choices().get(id) ?? "";
    const options = /** @type {any} */(CONTROLS)[id]?.[1];
    return [id, !options || Object.hasOwn(options, value) ? value || usual : usual];
  });
  if (Object.keys(USUAL).some(id => choices().has(id))) Object.assign(chosen, Object.fromEntries(wanted));
  for (const [id, value] of Object.entries(chosen)) write(id, value);
}

/** Write a choice into the address, which leaves out the usual one. */
const write = (/** @type {string} */ id, /** @type {string} */ value) =>
  choose(id, value === /** @type {any} */(USUAL)[id] ? "" : value);

/** Return the totals of the nodes that are shown. */
function drawnTotals() {
  const {gpus, free, stranded, nodes} = totals();
  const whole = free - stranded, held = gpus - free;
  const part = (/** @type {number} */ n, /** @type {string} */ kind) => {
    const made = h(`i.${kind}`);
    made.style.flexGrow = String(n);
    return n ? made : null;
  };
  const fact = (/** @type {number} */ n, /** @type {string} */ words, /** @type {string} */ kind) =>
    h("div.fact", {}, h("b", {}, n.toLocaleString("en")), h("span", {}, kind && h(`i.key.${kind}`), words));
  return [
    h("div.facts", {}, fact(free, `of ${gpus.toLocaleString("en")} GPUs free`, ""),
      fact(whole, "on nodes that are all free", "whole"), fact(stranded, "beside allocated ones", "stranded"),
      fact(held, "allocated or unusable", "held"), fact(nodes, nodes === 1 ? "node" : "nodes", "")),
    h("div.share", {role: "img", "aria-label":
      `${held} of ${gpus} GPUs allocated or unusable, ${stranded} free beside those, ${whole} on free nodes`},
    part(held, "held"), part(stranded, "stranded"), part(whole, "whole"))];
}

/** @returns {import("./app.js").View} */
export function fleet(/** @type {HTMLElement} */ place) {
  restore();
  const total = h("section.totals", {"aria-label": "Totals"});
  place.append(h("h1.heard", {}, "Fleet"), total);
  const map = fleetMap(place, {rows, chosen, choose: write, marked: () => store.trial, hidesMarks: () => store.past !== null,
    marks: ["Of the tried manifest", "the tried manifest"], hidden: [], heading: "h2",
    opener: name => h("a", {href: link("node", name)})});
  return {title: "Fleet", leave: map.leave, draw: () => {
    total.replaceChildren(...drawnTotals());
    map.draw();
  }};
}
