// @ts-check
/** Makes elements. Texts become text nodes, so that a name is never markup. */

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

const numbers = new Intl.NumberFormat("en");

export const plural = (/** @type {number} */ number, /** @type {string} */ noun) =>
  `${numbers.format(number)} ${noun}${number === 1 ? "" : "s"}`;
