// @ts-check
/** The row of a node as the server writes it, and what is shown of one row. */

import {plural} from "./elements.js";

/** @typedef {any[]} Row */

/** Places in the row of a node. */
export const [NAME, POOL, MODEL, MODE, DOMAIN, STATES, USED, FREE, STRANDED, CLOSED, PROBLEMS, HOLDERS] =
  Array(12).keys();
/** Places in the row of a pod that holds GPUs. */
export const [POD, GANG, GPUS, COUNTED, AMOUNT, COLOUR] = Array(6).keys();

/** @type {WeakMap<Row, string>} */
const texts = new WeakMap();
/** Return everything of a node that the search looks through. */
export function searched(/** @type {Row} */ row) {
  if (!texts.has(row)) {
    const pods = row[HOLDERS].map((/** @type {any} */ pod) => `${pod[POD]} ${pod[GANG]}`);
    texts.set(row, [row[NAME], row[POOL], row[MODEL], row[MODE], row[DOMAIN], ...row[PROBLEMS],
      ...pods].join("\n").toLowerCase());
  }
  return texts.get(row);
}

/** Return the style of a node in one colouring. */
export function heat(/** @type {Row} */ row, /** @type {string} */ colour) {
  const used = row[USED];
  if (colour !== "fragmented") {
    return used === 0 ? "h0" : used === 100 ? "h5" : `h${1 + Math.min(3, Math.floor(used / 25))}`;
  }
  if (!row[FREE]) return "full";
  return row[STRANDED] ? `f${Math.ceil(3 * row[STRANDED] / row[STATES].length)}` : "f0";
}

/** Return a node in words. */
export function summary(/** @type {Row} */ row) {
  const words = [`${row[FREE]} of ${plural(row[STATES].length, "GPU")} free`];
  if (/[1-9]/.test(row[STATES])) words.push(`${row[USED]} % allocated`);
  return [...words, ...row[PROBLEMS]].join(", ");
}
