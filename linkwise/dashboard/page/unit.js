// @ts-check
/** A gang or a pod: its plan against reality, its bandwidth, why it waits, and its history. */

import {bar, clock, drawing, duration, link, preempted} from "./dom.js";
import {h, nameOf, plural, shown} from "./elements.js";
import {now} from "./store.js";
import {fetchedView} from "./view.js";

const KINDS = {placed: ["✓ placed", "good"], fits: ["✓ fits now", "good"], waits: ["waits", "bad"],
  never: ["✕ never fits", "bad"]};

const CHANGES = {allocated: "Allocated", released: "Released", moved: "Moved", gained: "More GPUs", lost: "Fewer GPUs"};

/** @returns {import("./app.js").View} */
export function unit(/** @type {HTMLElement} */ place, /** @type {string[]} */ parts) {
  const [kind, namespace = "", name = ""] = parts;
  return fetchedView(place, name, "unit", {kind, namespace, name},
    units => units.flatMap(content), `There is no ${kind} of this name.`, earlier);
}

/** Show what it had at an earlier moment; the reasons of the planner are not kept. */
function earlier(/** @type {any} */ then, /** @type {number} */ at) {
  if (!then) return [h("p.empty", {}, `At ${clock(at)} nothing of this name had GPUs or waited.`)];
  const {pods: held, waited} = then;
  const [words, look] = held.length ? ["had GPUs", "good"] : ["waited", "bad"];
  return [
    ...head(then, words, look),
    h("p.quiet", {}, `At ${clock(at)}, ${duration(now() - at)} ago · namespace `, nameOf(then.namespace)),
    waited && h("div.card.why", {}, h("h2", {}, "It waited"), h("p", {}, `${plural(waited.pods, "pod")}, ${waited.asks} each. `
      + "The reasons of the planner are computed for the present alone.")),
    h("div.sides", {}, figures(then), h("div", {}, changes(then.changes))),
    held.length ? h("h2", {}, `${plural(held.length, "pod")} had GPUs`) : null,
    held.length ? h("div.card", {}, table(["Pod", "Node", "GPUs"], held.map((/** @type {any} */ pod) =>
      [nameOf(pod.name), h("a", {href: link("node", pod.node)}, nameOf(pod.node)), pod.gpus.join(" ") || pod.amount]))) : null,
  ];
}

/** Make the way back, and the title with the state of a gang or a pod. */
const head = (/** @type {any} */ one, /** @type {string} */ words, /** @type {string} */ look) => [
  h("p.back", {}, h("a", {href: "#/fleet"}, "← Fleet"), " · ", h("a", {href: "#/waiting"}, "Waiting")),
  h("div.title", {}, h(`span.chip.big.u${one.colour}`, {}, "A"), h("h1", {}, nameOf(one.name)),
    h(`span.status.${look}`, {}, words)),
];

/** Draw its nodes. */
const figures = (/** @type {any} */ view) => h("div.figures", {}, view.nodes.map((/** @type {any} */ node) =>
  h("section.card.figure", {}, h("h2", {}, h("a", {href: link("node", node.name)}, nameOf(node.name))),
    node.drawing.length ? drawing(node.drawing) : null)),
view.more ? h("p.quiet", {}, `${plural(view.more, "more node")}`) : null);

/** Make a table; the first cell of a row is its head. */
const table = (/** @type {string[]} */ heads, /** @type {any[][]} */ rows) => h("table", {},
  h("thead", {}, h("tr", {}, heads.map(text => h("th", {scope: "col"}, text)))),
  h("tbody", {}, rows.map(([first, ...rest]) => h("tr", {}, h("th", {scope: "row"}, first),
    rest.map(cell => h("td", {}, cell))))));

function content(/** @type {any} */ view) {
  const one = view.unit;
  const [words, look] = /** @type {any} */(KINDS)[one.state] ?? [one.state, "quiet"];
  return [
    ...head({name: one.name, colour: view.colour}, words, look),
    h("p.quiet", {}, `${one.kind} of ${plural(one.pods.length, "pod")} · namespace `, nameOf(one.namespace),
      one.nodes.length ? ` · ${plural(one.nodes.length, "node")}` : ""),
    one.reason ? h("div.card.why", {}, h("h2", {}, one.state === "placed" ? "Note" : "Why it waits"),
      h("p", {}, capital(one.reason)), preempted(view.preempts)) : null,
    one.help.length ? h("div.card.help", {}, h("h2", {}, "What would help"), h("ul", {},
      one.help.map((/** @type {string} */ text) => h("li", {}, capital(text))))) : null,
    h("div.sides", {}, figures(view), h("div", {}, bandwidth(one), reasons(one), plan(view.plan), changes(view.changes))),
    h("h2", {}, plural(one.pods.length, "pod")),
    h("div.card", {}, table(["Pod", "Node", "GPUs", "State"], one.pods.map((/** @type {any} */ pod) => [nameOf(pod.name),
      pod.node ? h("a", {href: link("node", pod.node)}, nameOf(pod.node)) : "–",
      pod.count ? `${pod.count} by count` : pod.gpus.join(" ") || "–", pod.state]))),
  ];
}

const capital = (/** @type {string} */ text) => {
  const words = shown(text);
  return words.charAt(0).toUpperCase() + words.slice(1) + (/[.?!]$/.test(words) ? "" : ".");
};

function bandwidth(/** @type {any} */ one) {
  const compared = [["Planned", one.bandwidth, "chosen"], ["Best possible, on the empty cluster",
    one.best_possible, "best"], ["Index order", one.index_order.bandwidth, "order"]];
  const most = Math.max(...compared.map(([, value]) => value ?? 0));
  if (!most) return null;
  const times = one.index_order.bandwidth ? one.bandwidth / one.index_order.bandwidth : 0;
  return h("section.card", {}, h("h2", {}, "Bandwidth"),
    h("p.quiet.small", {}, "All-reduce, modelled", one.bandwidth_note ? ` (${shown(one.bandwidth_note)})` : ""),
    h("dl.bars", {}, compared.map(([label, value, kind]) =>
      bar(label, value === null ? "–" : `${value.toFixed(1)} GB/s`, (value ?? 0) / most, kind))),
    times >= 1.05 ? h("p.gain", {}, h("b", {}, `${times.toFixed(1)} ×`), " as fast as index order") : null);
}

function reasons(/** @type {any} */ one) {
  const texts = [one.why, one.changed, one.membership, one.unhealthy, ...one.notes].filter(Boolean);
  return texts.length ? h("section.card", {}, h("h2", {}, "Why here"),
    texts.map(text => h("p", {}, capital(text)))) : null;
}

function plan(/** @type {any} */ recorded) {
  if (!recorded) return null;
  const at = (/** @type {string} */ text) => Number.isNaN(Date.parse(text)) ? shown(text)
    : clock(Date.parse(text) / 1000);
  const events = [[recorded.created, "Created", ""], ...recorded.events];
  return h("section.card", {}, h("h2", {}, "Recorded in its Gang"),
    h("p.quiet.small", {}, `Phase ${recorded.phase || "unknown"} · ${shown(recorded.members)} members`,
      recorded.bandwidth ? ` · planned ${recorded.bandwidth} GB/s` : ""),
    h("ol.history", {}, events.map(([time, what, message]) => h("li", {}, h("time", {}, at(time)),
      h("b", {}, shown(what)), message && h("span.quiet", {}, ` ${shown(message)}`)))));
}

/** Show what became of its GPUs while the page was served. */
function changes(/** @type {any[]} */ seen) {
  if (!seen.length) return null;
  const places = (/** @type {any[]} */ nodes) => nodes.map((has, i) => [i ? ", " : " ", nameOf(has.node),
    has.gpus.length ? ` (GPU${has.gpus.length > 1 ? "s" : ""} ${has.gpus.join(" ")})` : ` (${plural(has.pods, "pod")})`]);
  return h("section.card.changes", {}, h("h2", {}, "Its GPUs in the last hour"),
    h("ol.history", {}, seen.map(change => h("li", {}, h("time", {}, clock(change.at)),
      h("b", {}, /** @type {any} */(CHANGES)[change.kind]),
      change.before.length ? h("span.quiet", {}, " from", places(change.before)) : null,
      change.after.length ? h("span", {}, change.before.length ? " to" : " on", places(change.after)) : null))));
}
