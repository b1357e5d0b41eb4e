// @ts-check
/** Drawings, bars, times and addresses, for the views. */

import {h, nameOf} from "./elements.js";

const SVG = "http://www.w3.org/2000/svg";
const TAGS = new Set(["svg", "g", "desc", "title", "rect", "path", "text"]);
const ATTRIBUTES = new Set(["class", "d", "x", "y", "rx", "width", "height", "viewBox", "role",
  "aria-label", "textLength", "lengthAdjust"]);

/** Name the units that would be evicted for another one; null where there are none. */
export const preempted = (/** @type {string[]} */ texts) => texts.length
  ? h("p", {}, h("b", {}, "Would preempt "), texts.map((text, i) => [i ? "; " : "", nameOf(text)]), ".") : null;

/**
 * Make a drawing from its tree, which has only tags and attributes of drawings.
 * @param {any} tree Tag, attributes and children.
 * @returns {SVGElement}
 */
export function drawing(tree) {
  const [tag, attributes, children] = tree;
  if (!TAGS.has(tag)) throw new Error(`a drawing has no ${tag}`);
  const made = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (ATTRIBUTES.has(key)) made.setAttribute(key, String(value));
  }
  for (const child of children) {
    made.append(Array.isArray(child) ? drawing(child) : String(child));
  }
  return made;
}

/** Make an element of SVG. */
export function s(/** @type {string} */ tag, /** @type {Record<string, any>} */ attributes = {},
  /** @type {Node[]} */ ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  made.append(...children);
  return made;
}

/** Return a duration in words [s]. */
export function duration(/** @type {number} */ seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor(whole % 3600 / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor(whole % 86400 / 3600)} h`;
}

/** Return the time of a day [s since 1970]. */
export const clock = (/** @type {number} */ at) =>
  new Date(at * 1000).toLocaleTimeString("en-GB");

/** Return the address of a view; each part is encoded. */
export const link = (/** @type {string[]} */ ...parts) =>
  `#/${parts.map(encodeURIComponent).join("/")}`;

/** Return the address of a gang or a pod by `namespace/name`. */
export function unitLink(/** @type {string} */ kind, /** @type {string} */ name) {
  const cut = name.indexOf("/");
  return link(kind, name.slice(0, cut), name.slice(cut + 1));
}

/** Make a bar with its label and its value. */
export function bar(/** @type {import("./elements.js").Child} */ label, /** @type {import("./elements.js").Child} */ value,
  /** @type {number} */ part, /** @type {string} */ kind) {
  const inner = h(`i.${kind}`);
  inner.style.width = `${Math.max(0, Math.min(100, 100 * part)).toFixed(1)}%`;
  return [h("dt", {}, h("span", {}, label), h("b", {}, value)), h("dd", {}, part > 0 && inner)];
}
