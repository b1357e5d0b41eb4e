// @ts-check
/** The address of what is shown: a view with its parts, and choices after a `?`. */

/** Browsers refuse addresses that are written more often for long [ms]. */
const PAUSE = 150;
/** Choices that are not written yet, or null. @type {URLSearchParams | null} */
let pending = null;
/** @type {number | undefined} */
let timer;

/** Return the parts of the view's address; the first is its kind. */
export const parts = () => location.hash.replace(/^#\/?/, "").split("?")[0].split("/").map(part => {
  try { return decodeURIComponent(part); } catch { return part; }
});

/** Return the choices in the address. */
export const choices = () => new URLSearchParams(pending ?? location.hash.split(/\?(.*)/s)[1] ?? "");

/** Write a choice into the address, which stays the same entry of the browser's history; "" removes it. */
export function choose(/** @type {string} */ key, /** @type {string} */ value) {
  const all = choices();
  if (value === (all.get(key) ?? "")) return;
  if (value) all.set(key, value);
  else all.delete(key);
  pending = all;
  timer ??= window.setTimeout(write, PAUSE);
}

function write() {
  const view = location.hash.split("?")[0] || "#/fleet", all = String(pending);
  history.replaceState(null, "", all ? `${view}?${all}` : view);
  forget();
}

function forget() {
  window.clearTimeout(timer);
  [pending, timer] = [null, undefined];
}

/* A choice that is not written yet was one of the view before. */
window.addEventListener("hashchange", forget);
