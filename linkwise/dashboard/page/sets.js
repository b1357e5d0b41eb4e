// @ts-check
/** The free sets of GPUs by size, what fragments them, and their number over the last hour. */

import {bar, clock, link, s, unitLink} from "./dom.js";
import {h, nameOf, plural, shown} from "./elements.js";
import {fetchedView} from "./view.js";

const SHOWN = 12, WIDTH = 600, HEIGHT = 120;
/** The place of the numbers of free sets in a sample. */
const SETS = 5;

/** @returns {import("./app.js").View} */
export function sets(/** @type {HTMLElement} */ place) {
  return fetchedView(place, "Free sets", "sets", {}, view => content(view, 0), "", content);
}

/** Make the content; `at`: an earlier moment [s since 1970], or 0. */
function content(/** @type {any} */ view, /** @type {number} */ at) {
  if (!view.groups.length) {
    return [h("h1", {}, at ? `At ${clock(at)} no node offered whole GPUs` : "No node offers whole GPUs"), h("p.quiet", {}, "Sets are counted of whole GPUs.")];
  }
  return [
    h("h1", {}, at ? `Free sets at ${clock(at)}` : "Free sets"),
    h("p.quiet", {}, `How many gangs of each size the free GPUs ${at ? "could take then" : "can take now"}, each on one `
      + "node. The outline is what as many GPUs would make on as few nodes as possible."),
    ...view.domains.map(domain),
    ...view.groups.map(group),
    history(view.samples),
    setsOverTime(view.samples, view.sizes),
  ];
}

function domain(/** @type {any} */ one) {
  return h("p.quiet", {}, h("b", {}, `${one.free} of ${plural(one.domains, "network domain")}`),
    ` by ${one.label} ${one.free === 1 ? "is" : "are"} free as a whole`,
    one.free ? `: ${plural(one.gpus, "GPU")}.` : ".");
}

function group(/** @type {any} */ one) {
  const title = [one.model ?? "model unknown", one.pool && `pool ${one.pool}`].filter(Boolean).join(" · ");
  const facts = [plural(one.nodes, "node"), `${one.free.toLocaleString("en")} GPUs free`,
    one.closed && `${plural(one.closed, "node")} closed`,
    one.counted && "NVIDIA's plugin chooses the GPUs", one.claims && "pods get them by claims"].filter(Boolean).join(" · ");
  return h("section.card.slots", {}, h("div.head", {}, h("h2", {}, shown(title)), h("span.quiet.small", {}, facts)),
    h("div.sizes", {}, one.sets.map(size)), fragments(one), freed(one));
}

/** Show the moves that would make nodes whole. */
function freed(/** @type {any} */ one) {
  if (!one.freed.length) return null;
  const unit = (/** @type {any} */ move, /** @type {number} */ i) => [i ? ", " : "",
    h("a", {href: unitLink("gang", move.unit)}, nameOf(move.unit)), ` (${plural(move.gpus, "GPU")}) to `,
    h("a", {href: link("node", move.to)}, nameOf(move.to))];
  return h("details.more", {}, h("summary", {}, `${plural(one.freed.length, "node")} that moves would make whole`),
    h("p.quiet.small", {}, "Advice: only GPUs are counted, each node for itself, and nothing is moved."),
    h("table", {}, h("thead", {}, h("tr", {}, ["Node", "GPUs that move", "Moves"].map(text => h("th", {scope: "col"}, text)))),
      h("tbody", {}, one.freed.slice(0, SHOWN).map((/** @type {any} */ node) => h("tr", {},
        h("th", {scope: "row"}, h("a", {href: link("node", node.name)}, nameOf(node.name))),
        h("td", {}, node.gpus), h("td", {}, node.moves.map(unit)))))));
}

function size(/** @type {any} */ set) {
  const most = Math.max(set.together, set.total, 1);
  const made = bar(!set.total ? "none" : set.fastest === null ? "links not known" : set.fastest === set.total ? "all at full bandwidth"
    : `${set.fastest} at full bandwidth`, set.bandwidth ? `${set.bandwidth.toFixed(1)} GB/s` : "",
  (set.fastest ?? set.total) / most, "chosen");
  const outline = h("i.outline");
  outline.style.width = `${(100 * set.together / most).toFixed(1)}%`;
  made[1].append(outline);
  return h("div.size", {}, h("b", {}, set.total.toLocaleString("en")),
    h("span.quiet", {}, set.size === 1 ? "single GPUs" : `sets of ${set.size}`), h("dl.bars.worth", {}, made));
}

/** Show the nodes that the fewest GPUs of pods keep from being whole. */
function fragments(/** @type {any} */ one) {
  const nodes = one.partly_free.filter((/** @type {any} */ node) => node.allocated)
    .sort((/** @type {any} */ a, /** @type {any} */ b) => a.allocated - b.allocated);
  if (!nodes.length) return null;
  return h("details.more", {}, h("summary", {}, `${plural(nodes.length, "node")} that few GPUs keep from being whole`),
    h("table", {}, h("thead", {}, h("tr", {}, ["Node", "Free", "It would be whole once these end"].map(text =>
      h("th", {scope: "col"}, text)))), h("tbody", {}, nodes.slice(0, SHOWN).map((/** @type {any} */ node) =>
      h("tr", {}, h("th", {scope: "row"}, h("a", {href: link("node", node.name)}, nameOf(node.name))),
        h("td", {}, node.free), h("td", {}, node.units.map((/** @type {string} */ name, /** @type {number} */ i) =>
          [i ? ", " : "", h("a", {href: unitLink("gang", name)}, nameOf(name))]),
        h("span.quiet", {}, ` ${plural(node.allocated, "GPU")}`)))))));
}

/** Draw the free GPUs over time: those on nodes that are all free below those beside allocated ones. */
function history(/** @type {number[][]} */ samples) {
  if (samples.length < 2) return null;
  const [first, last] = [samples[0][0], samples[samples.length - 1][0]];
  const most = Math.max(...samples.map(([, , free]) => free), 1);
  const x = (/** @type {number} */ at) => (WIDTH * (at - first) / (last - first || 1)).toFixed(1);
  const y = (/** @type {number} */ gpus) => (HEIGHT - (HEIGHT - 6) * gpus / most).toFixed(1);
  const area = (/** @type {(sample: number[]) => number} */ of) => {
    const points = samples.flatMap((sample, i) => [`${x(sample[0])} ${y(of(sample))}`,
      `${x((samples[i + 1] ?? sample)[0])} ${y(of(sample))}`]);
    return `M0 ${HEIGHT}L${points.join("L")}L${WIDTH} ${HEIGHT}Z`;
  };
  return h("section.card", {}, h("h2", {}, "Free GPUs over time"),
    h("p.quiet.small.legend-line", {}, h("span", {}, h("i.key.whole"), "on nodes that are all free"),
      h("span", {}, h("i.key.stranded"), "beside allocated ones")),
    h("div.chart", {}, s("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img",
      "aria-label": `Free GPUs since ${clock(first)}`}, s("path", {class: "stranded", d: area(([, , free]) => free)}),
    s("path", {class: "whole", d: area(([, , free, stranded]) => free - stranded)}))),
    h("p.quiet.small.ends", {}, h("span", {}, clock(first)), h("span", {}, clock(last))));
}

/** Draw the number of free sets of each size over time. */
function setsOverTime(/** @type {any[][]} */ samples, /** @type {number[]} */ sizes) {
  if (samples.length < 2) return null;
  const [first, last] = [samples[0][0], samples[samples.length - 1][0]], several = sizes.filter(size => size > 1);
  const most = Math.max(...samples.map(sample => Math.max(...several.map((_, i) => sample[SETS][i]))), 1);
  const x = (/** @type {number} */ at) => (WIDTH * (at - first) / (last - first || 1)).toFixed(1);
  const y = (/** @type {number} */ count) => (HEIGHT - 2 - (HEIGHT - 6) * count / most).toFixed(1);
  const line = (/** @type {number} */ i) => `M${samples.flatMap((sample, k) => [`${x(sample[0])} ${y(sample[SETS][i])}`,
    `${x((samples[k + 1] ?? sample)[0])} ${y(sample[SETS][i])}`]).join("L")}`;
  return h("section.card", {}, h("h2", {}, "Free sets over time"),
    h("p.quiet.small.legend-line", {}, several.map((size, i) => h("span", {}, h(`i.key.line${i}`),
      `sets of ${size}: ${samples[samples.length - 1][SETS][i].toLocaleString("en")}`))),
    h("div.chart", {}, s("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img",
      "aria-label": `Free sets since ${clock(first)}, at most ${most}`},
    ...several.map((_, i) => s("path", {class: `line line${i}`, d: line(i)})))),
    h("p.quiet.small.ends", {}, h("span", {}, clock(first)), h("span", {}, clock(last))));
}
