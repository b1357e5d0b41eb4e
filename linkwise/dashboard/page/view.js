// @ts-check
/** Views that are computed by the server: fetched again when the cluster, or the moment, changes. */

import {h, shown} from "./elements.js";
import {fetched, store} from "./store.js";

const PAUSE = 1000, SCRUBBING = 150;

/**
 * Return a view whose document is fetched; it is drawn again only if it changed.
 * @param {HTMLElement} place
 * @param {string} title
 * @param {string} name Of the document.
 * @param {Record<string, string>} query
 * @param {(document: any) => (Node | null)[]} content Makes the content.
 * @param {string} absent What is shown where there is no such object.
 * @param {(document: any, at: number) => (Node | null)[]} [earlier] Makes the content of an earlier
 *   moment [s since 1970]; without it, the view shows the present alone.
 * @returns {import("./app.js").View}
 */
export function fetchedView(place, title, name, query, content, absent, earlier) {
  let state = "", text = "", left = false, busy = false;
  place.append(h("p.quiet.loading", {}, "Computing …"));

  /** Return the earlier moment that is shown, in whole seconds; 0: the present. */
  const moment = () => earlier && store.past ? Math.round(store.past.at) : 0;

  async function draw() {
    const at = moment(), wanted = at ? `at ${at}` : store.version;
    if (busy || left || state === wanted || !store.facts) return;
    busy = true;
    state = wanted;
    try {
      const document = await fetched(name, at ? {...query, at: String(at)} : query);
      if (left || at !== moment()) return;
      const now = JSON.stringify([document, at]);
      if (now !== text) {
        text = now;
        const made = at && earlier ? earlier(document, at)
          : document === null ? [h("p.empty", {}, absent)] : content(document);
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
      }, store.past ? SCRUBBING : PAUSE);
    }
  }
  return {title, draw, leave: () => { left = true; }};
}
