// @ts-check
/** Views that are computed by the server: fetched again when the cluster changes. */

import {h, shown} from "./dom.js";
import {fetched, store} from "./store.js";

const PAUSE = 1000;

/**
 * Return a view whose document is fetched; it is drawn again only if it changed.
 * @param {HTMLElement} place
 * @param {string} title
 * @param {string} name Of the document.
 * @param {Record<string, string>} query
 * @param {(document: any) => (Node | null)[]} content Makes the content.
 * @param {string} absent What is shown where there is no such object.
 * @returns {import("./app.js").View}
 */
export function fetchedView(place, title, name, query, content, absent) {
  let version = -1, text = "", left = false, busy = false;
  place.append(h("p.quiet.loading", {}, "Computing …"));

  async function draw() {
    if (busy || left || version === store.version || !store.facts) return;
    busy = true;
    version = store.version;
    try {
      const document = await fetched(name, query);
      if (left) return;
      const now = JSON.stringify(document);
      if (now !== text) {
        text = now;
        const made = document === null ? [h("p.empty", {}, absent)] : content(document);
        const focus = globalThis.document.activeElement;
        const key = focus instanceof HTMLElement ? focus.dataset.key : undefined;
        place.replaceChildren(...made.filter(one => one !== null));
        if (key) {
          const again = [...place.querySelectorAll("[data-key]")].find(one =>
            one instanceof HTMLElement && one.dataset.key === key);
          if (again instanceof HTMLElement) again.focus();
        }
      }
    } catch (error) {
      if (!left) place.replaceChildren(h("p.notice", {}, shown(String(error))));
      text = "";
    } finally {
      window.setTimeout(() => {
        busy = false;
        if (!left) draw();
      }, PAUSE);
    }
  }
  return {title, draw, leave: () => { left = true; }};
}
