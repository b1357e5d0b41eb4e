// @ts-check
/** One node: its GPUs and links as a drawing, their holders, and what the free ones are worth. */

import {bar, clock, drawing, duration, unitLink} from "./dom.js";
import {h, nameOf, plural, shown} from "./elements.js";
import {now} from "./store.js";
import {AMOUNT, CLOSED, FREE, GANG, GPUS, HOLDERS, MODE, MODEL, NAME, POD, PROBLEMS, STATES} from "./rows.js";
import {fetchedView} from "./view.js";

/** @returns {import("./app.js").View} */
export function node(/** @type {HTMLElement} */ place, /** @type {string[]} */ parts) {
  const name = parts[1] ?? "";
  return fetchedView(place, name, "node", {name}, content, "There is no node with GPUs of this name.", earlier);
}

/** Show its GPUs and their holders at an earlier moment. */
function earlier(/** @type {any} */ then, /** @type {number} */ at) {
  if (!then) return [h("p.empty", {}, `At ${clock(at)} there was no node with GPUs of this name.`)];
  const {row} = then;
  const holders = row[HOLDERS].map((/** @type {any} */ pod) => h("tr", {},
    h("th", {scope: "row"}, h("a", {href: unitLink("pod", pod[POD])}, nameOf(pod[POD]))),
    h("td", {}, pod[GPUS].join(" ") || "–"), h("td", {}, shown(pod[AMOUNT])),
    h("td", {}, pod[GANG] ? h("a", {href: unitLink("gang", pod[GANG])}, nameOf(pod[GANG])) : "–")));
  return [
    ...head(row[NAME], row[CLOSED] ? "took no pods" : "took pods", row[CLOSED] ? "bad" : "good"),
    h("p.quiet", {}, `At ${clock(at)}, ${duration(now() - at)} ago · ${shown(row[MODEL] || "model unknown")} · mode ${
      shown(row[MODE])} · ${row[FREE]} of ${plural(row[STATES].length, "GPU")} free · links as they are now`),
    ...row[PROBLEMS].map((/** @type {string} */ text) => h("p.notice", {}, shown(text))),
    h("div.sides", {}, figure(then.drawing), then.units.length ? units(then.units) : null),
    h("h2", {}, holders.length ? `${plural(holders.length, "pod")} had GPUs` : "No pod had a GPU here"),
    holders.length ? h("div.card", {}, h("table", {}, h("thead", {}, h("tr", {}, ["Pod", "GPUs", "Amount", "Gang"].map(text =>
      h("th", {scope: "col"}, text)))), h("tbody", {}, holders))) : null,
  ];
}

/** Make the way back, and the title with the state of the node. */
const head = (/** @type {string} */ name, /** @type {string} */ words, /** @type {string} */ look) => [
  h("p.back", {}, h("a", {href: "#/fleet"}, "← Fleet")),
  h("div.title", {}, h("h1", {}, nameOf(name)), h(`span.status.${look}`, {}, words)),
];

const figure = (/** @type {any} */ tree, links = "") => h("section.card.figure", {}, ...tree
  ? [drawing(tree), links ? h("p.quiet.small.links", {}, links) : null]
  : [h("p.quiet", {}, "It offers no GPUs.")]);

function content(/** @type {any} */ view) {
  const report = view.report;
  const facts = [report.model ?? "model unknown", `mode ${report.mode}${report.pool ? " by claims" : ""}`,
    `${report.gpus_free} of ${plural(report.devs.length, "GPU")} free`,
    report.kubelet.topology_manager && `topology manager ${report.kubelet.topology_manager.policy ?? ""}`,
    report.enforced.length ? `shares limited by ${report.enforced.join(", ")}` : null,
    report.address].filter(Boolean).map(shown).join(" · ");
  const state = !report.ready ? ["not ready", "bad"] : report.unschedulable ? ["unschedulable", "bad"]
    : report.unaccounted ? ["unaccounted", "bad"] : ["ready", "good"];
  return [
    ...head(report.name, state[0], state[1]),
    h("p.quiet", {}, facts),
    ...view.notes.map((/** @type {string} */ note) => h("p.notice", {}, shown(note))),
    h("div.sides", {},
      figure(view.drawing, view.links),
      h("div", {}, units(view.units), worth(view.worth))),
    h("h2", {}, "GPUs"),
    h("div.card", {}, devices(report)),
  ];
}

function units(/** @type {any[]} */ list) {
  return h("section.card", {}, h("h2", {}, list.length ? "Holders" : "No pod has a GPU here"),
    h("ul.holders", {}, list.map(unit => h("li", {},
      h(`span.chip.u${unit.colour}`, {}, unit.letters),
      h("a", {href: unitLink(unit.kind, unit.name), "data-key": unit.name}, nameOf(unit.name)),
      h("span.quiet.small", {}, `${unit.kind}, ${plural(unit.gpus, "GPU")}`)))));
}

function worth(/** @type {any[]} */ list) {
  if (!list.length) return null;
  const most = Math.max(...list.map(one => one.best), 1);
  return h("section.card", {}, h("h2", {}, "What its free GPUs are worth"),
    h("p.quiet.small", {}, "The fastest free set of each size, modelled all-reduce bandwidth; "
      + "the outline is the best of an empty node."),
    h("dl.bars.worth", {}, list.map(one => {
      const made = bar(`${one.size} GPUs: ${one.gpus.join(" ")}`,
        `${one.bandwidth.toFixed(1)} of ${one.best.toFixed(1)} GB/s`, one.bandwidth / most, "chosen");
      const best = h("i.outline");
      best.style.width = `${(100 * one.best / most).toFixed(1)}%`;
      made[1].append(best);
      return made;
    })));
}

function devices(/** @type {any} */ report) {
  const rows = report.devs.map((/** @type {any} */ gpu) => {
    const problems = [!gpu.healthy && "unhealthy",
      gpu.claimed ? !gpu.pods.length && "held by a claim" : gpu.cordoned && "cordoned"].filter(Boolean).join(", ");
    const pods = gpu.pods.map((/** @type {any} */ pod) => {
      const amount = pod.whole ? "" : pod.replicas ? plural(pod.replicas, "replica")
        : [pod.usedGPU && `${pod.usedGPU} GiB`, pod.core && `${pod.core} %`].filter(Boolean).join(", ");
      const name = `${pod.namespace}/${pod.name}`;
      return h("li", {}, h("a", {href: unitLink("pod", name)}, nameOf(name)),
        amount && h("span.quiet", {}, ` ${amount}`),
        pod.gang && [" of ", h("a", {href: unitLink("gang", pod.gang)}, "gang ", nameOf(pod.gang))],
        !pod.bound && h("span.quiet", {}, ", not bound yet"));
    });
    const links = Object.entries(gpu.nvlinks).map(([peer, count]) => `${peer}: NV${count}`).join("  ");
    return h("tr", {}, h("th", {scope: "row"}, `GPU${gpu.id}`),
      h("td", {}, problems && h("b.bad", {}, problems), pods.length ? h("ul", {}, pods)
        : !problems && h("span.quiet", {}, report.unaccounted ? "unknown" : "free")),
      h("td.mono.quiet", {}, links || "–"),
      h("td.mono.quiet", {}, gpu.uuid ? shown(gpu.uuid) : "–"));
  });
  return h("table", {}, h("thead", {}, h("tr", {}, ["GPU", "Allocated to", "NVLinks", "UUID"].map(text =>
    h("th", {scope: "col"}, text)))), h("tbody", {}, rows));
}
