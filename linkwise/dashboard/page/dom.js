// @ts-check
/** Makes elements. Texts become text nodes, so that a name is never markup. */

const SVG = "http://www.w3.org/2000/svg";
const TAGS = new Set(["svg", "g", "desc", "title", "rect", "path", "text"]);
const ATTRIBUTES = new Set(["class", "d", "x", "y", "rx", "width", "height", "viewBox", "role",
  "aria-label", "textLength", "lengthAdjust"]);

/** @typedef {Node | string | number | null | undefined | false | Child[]} Child */

/**
 * Make an element.
 * @param {string} tag Its tag, with classes: `div.card.bad`.
 * @param {Record<string, any>} [attributes] Attributes; `onclick` and the like are listeners.
 * @param {...Child} children Elements and texts.
 * @returns {HTMLElement}
 */
export function h(tag, attributes = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const made = document.createElement(name);
  if (classes.length) made.className = classes.join(" ");
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : String(value));
  }
  append(made, children);
  return made;
}

/** @param {Element} parent @param {Child} child */
function append(parent, child) {
  if (Array.isArray(child)) child.forEach(each => append(parent, each));
  else if (child instanceof Node) parent.append(child);
  else if (child !== null && child !== undefined && child !== false) parent.append(String(child));
}

/** Compare two names as people sort them: `gpu-2` before `gpu-10`. */
export const byName = new Intl.Collator("en", {numeric: true}).compare;

/** Return a text without characters that are not seen or that change the direction of others. */
export const shown = (/** @type {string} */ text) => text.replace(/\p{C}/gu, "\ufffd");

/** Return a name from a person, apart from the direction of the text around it. */
export const nameOf = (/** @type {string} */ text) => h("bdi", {}, shown(text));

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

const numbers = new Intl.NumberFormat("en");

export const plural = (/** @type {number} */ number, /** @type {string} */ noun) =>
  `${numbers.format(number)} ${noun}${number === 1 ? "" : "s"}`;

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
export function bar(/** @type {Child} */ label, /** @type {Child} */ value,
  /** @type {number} */ part, /** @type {string} */ kind) {
  const inner = h(`i.${kind}`);
  inner.style.width = `${Math.max(0, Math.min(100, 100 * part)).toFixed(1)}%`;
  return [h("dt", {}, h("span", {}, label), h("b", {}, value)), h("dd", {}, part > 0 && inner)];
}
