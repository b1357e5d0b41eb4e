// @ts-check
/** The page in a file: the map of its nodes, a dialog for each of them, and the search for results. */

import {h, nameOf, plural} from "./elements.js";
import {AMOUNT, FREE, GANG, GPUS, HOLDERS, MODE, MODEL, NAME, POD, POOL, STATES, summary} from "./rows.js";
import {USUAL, fleetMap} from "./map.js";

/** @typedef {import("./rows.js").Row} Row */
/** @typedef {{drawing: number, links: [number, number] | null, notes: string[], placed: string[]}} Details */

/** Up to so many nodes are one group. */
const FEW = 12;
const WORDS = {".": "free", "#": "held", "+": "placed now", "c": "held by count", "?": "unknown",
  "x": "unhealthy", "o": "cordoned"};
const LOOKS = {"#": "held", "+": "placed", "x": "free faulty", "o": "free faulty"};
const find = (/** @type {string} */ id) => /** @type {any} */(document.getElementById(id));

/** Fill the drawing of an empty node. */
function fill(/** @type {SVGElement} */ svg, /** @type {Row} */ row) {
  const counted = row[STATES].includes("c") && row[FREE] > 0;
  svg.querySelectorAll("rect.tile").forEach((tile, i) => {
    const gpu = /** @type {Element} */(tile.parentNode);
    const state = row[STATES][i] === "c" && !counted ? "#" : row[STATES][i];
    const word = gpu.querySelector("text.word"), title = gpu.querySelector("title");
    if (title) title.textContent = `GPU${i}`;
    if (word) word.textContent = counted ? "" : /** @type {any} */(WORDS)[state] ?? "";
    tile.setAttribute("class", `tile ${/** @type {any} */(LOOKS)[state] ?? "free"}`);
    if (state === "+") gpu.setAttribute("class", "on u0");
    const slot = /** @type {any} */(gpu.querySelector("rect.slot"));
    if (slot && /[1-9]/.test(state)) {
      const part = slot.cloneNode();
      part.setAttribute("class", "part held");
      part.setAttribute("width", slot.getAttribute("width") * state / 9);
      slot.after(part);
      if (word) word.textContent = state === "9" ? "full" : "shared";
    }
  });
}

function holders(/** @type {Row} */ row, /** @type {string[]} */ placed) {
  if (!row[HOLDERS].length) return h("p.quiet", {}, "No pod has any GPU here.");
  return h("table", {}, h("thead", {}, h("tr", {}, ["Pod", "GPUs", "Gang"].map(text => h("th", {}, text)))),
    h("tbody", {}, row[HOLDERS].map((/** @type {any} */ pod) => h("tr", {},
      h("td", {}, nameOf(pod[POD]), placed.includes(pod[POD]) && [" ", h("span.chip.u0", {}, "new")]),
      h("td", {}, [pod[GPUS].join(" "), pod[AMOUNT]].filter(Boolean).join(" · ")),
      h("td", {}, nameOf(pod[GANG].split("/").slice(1).join("/") || "–"))))));
}

function open(/** @type {Row} */ row, /** @type {Details} */ {drawing, links, notes, placed}) {
  const dialog = find("node"), template = find(`d${drawing}`), states = row[STATES];
  const figure = h("div", {}, template ? template.content.cloneNode(true) : h("p.quiet", {}, "It offers no GPUs now."));
  const svg = figure.querySelector("svg");
  if (svg) {
    svg.setAttribute("aria-label", `Links of ${row[NAME]}`);
    fill(svg, row);
  }
  const words = [states.includes("c") && "NVIDIA's device plugin chooses the GPUs; "
    + `${states.split("c").length - 1} of ${states.length} are allocated.`, ...notes,
  links && `Its free GPUs reach ${links[0].toFixed(1)} GB/s together; `
    + `as many of an empty one reach ${links[1].toFixed(1)} GB/s at best.`].filter(Boolean);
  const facts = [row[MODEL] || "model unknown", `mode ${row[MODE]}`, row[POOL] && `pool ${row[POOL]}`, summary(row)];
  dialog.replaceChildren(
    h("div.head", {}, h("h3", {}, row[NAME]),
      h("button.close", {type: "button", onclick: () => dialog.close()}, "Close")),
    h("p.quiet.small", {}, facts.filter(Boolean).join(" · ")),
    h("div.halves", {}, figure, h("div", {}, words.map(text => h("p", {}, text)), holders(row, placed))));
  dialog.showModal();
}

function show(/** @type {{rows: Row[], details: Details[]}} */ data) {
  const rows = new Map(data.rows.map(row => [row[NAME], row]));
  const details = new Map(data.rows.map((row, i) => [row[NAME], data.details[i]]));
  const placed = new Map(data.rows.filter(row => details.get(row[NAME])?.placed.length).map(row => [row[NAME],
    row[HOLDERS].filter((/** @type {any} */ pod) => details.get(row[NAME])?.placed.includes(pod[POD]))
      .flatMap((/** @type {any} */ pod) => pod[GPUS])]));
  const several = (/** @type {number} */ place) => new Set(data.rows.map(row => row[place])).size > 1;
  const group = data.rows.length <= FEW ? "none" : several(POOL) ? "pool" : several(MODEL) ? "model" : "none";
  const map = fleetMap(find("fleet"), {rows: () => rows, marked: () => placed.size ? placed : null,
    marks: ["Placed now", "placed now"], chosen: {...USUAL, colour: "used", group}, heading: "h3",
    hidden: placed.size ? ["domain"] : ["domain", "trial"],
    opener: name => h("button", {type: "button", onclick: () => open(/** @type {Row} */(rows.get(name)),
      /** @type {Details} */(details.get(name)))})});
  map.draw();
  find("node").addEventListener("click", (/** @type {Event} */ event) => {
    if (event.target === find("node")) find("node").close();
  });
  for (const button of document.querySelectorAll("button[data-search]")) {
    button.addEventListener("click", () => {
      map.pick("search", /** @type {any} */(button).dataset.search);
      find("fleet").scrollIntoView();
    });
  }
}

/** Search for gangs and pods of a simulation; it unfolds what it looks through. */
function searchUnits(/** @type {HTMLInputElement} */ finder) {
  const units = [...document.querySelectorAll(".unit")].map(unit => /** @type {HTMLElement} */(unit));
  const folds = [...document.querySelectorAll(".fold")].map(fold => /** @type {HTMLDetailsElement} */(fold));
  const groups = [...document.querySelectorAll(".results, .results > .card, .results > .fold")].map(group =>
    ({group: /** @type {HTMLElement} */(group), inner: units.filter(unit => group.contains(unit))}));
  const content = units.map(unit => unit.textContent?.toLowerCase());
  find("unit-search").hidden = false;
  finder.addEventListener("input", () => {
    const query = finder.value.trim().toLowerCase();
    units.forEach((unit, i) => { unit.hidden = !content[i]?.includes(query); });
    for (const fold of folds) fold.open = query !== "";
    for (const {group, inner} of groups) group.hidden = inner.every(unit => unit.hidden);
    const count = units.filter(unit => !unit.hidden).length;
    find("unit-count").textContent = query && `${count.toLocaleString("en")} of ${plural(units.length, "result")}`;
  });
}

/** Read JSON that is compressed, in base64 for addresses. */
function unpacked(/** @type {string} */ text) {
  const packed = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  const bytes = Uint8Array.from(packed, char => char.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

if (find("find-unit")) searchUnits(find("find-unit"));
if (find("fleet-data")) show(await unpacked(find("fleet-data").textContent));
