// @ts-check
/** The frame of the page: the head, the views and their addresses. */

import {parts} from "./address.js";
import {clock} from "./dom.js";
import {h, nameOf, plural, shown} from "./elements.js";
import {connect, staleness, store, subscribe} from "./store.js";
import {fleet} from "./fleet.js";
import {sets} from "./sets.js";
import {node} from "./node.js";
import {waiting} from "./waiting.js";
import {unit} from "./unit.js";
import {namespaces} from "./namespaces.js";
import {trial} from "./trial.js";
import {timeline} from "./timeline.js";

/**
 * A view draws itself into an element, and again when the store changes.
 * @typedef {{title: string, draw: () => void, leave?: () => void}} View
 */

/** @type {Record<string, (place: HTMLElement, parts: string[]) => View>} */
const VIEWS = {fleet, sets, node, waiting, gang: unit, pod: unit, namespaces, try: trial};
const NAV = [["fleet", "Fleet"], ["sets", "Free sets"], ["waiting", "Waiting"], ["namespaces", "Namespaces"],
  ["try", "Try a manifest"]];

const find = (/** @type {string} */ id) => /** @type {HTMLElement} */(document.getElementById(id));
/** @type {View | null} */
let view = null;

function route() {
  const here = parts();
  if (view && view.leave) view.leave();
  const kind = Object.hasOwn(VIEWS, here[0]) ? here[0] : "fleet";
  const place = find("view");
  place.replaceChildren();
  place.dataset.view = kind;
  view = VIEWS[kind](place, kind === here[0] ? here : [kind]);
  document.title = `${shown(view.title)} – Linkwise`;
  for (const item of find("nav").querySelectorAll("a")) {
    if (item.dataset.view === kind) item.setAttribute("aria-current", "page");
    else item.removeAttribute("aria-current");
  }
  view.draw();
  window.scrollTo(0, 0);
}

function head() {
  const facts = store.facts;
  if (!facts) return;
  find("source").replaceChildren(nameOf(facts.source.replace(/^https?:\/\//, "")));
  const old = staleness();
  const words = store.past ? `As at ${clock(store.past.at)}` : !store.connected ? "Not connected" : old ? "Not up to date"
    : facts.live ? "Live" : "From a file";
  find("state").replaceChildren(h(`span.dot.${store.past ? "past" : old ? "bad" : facts.live ? "live" : "still"}`), words);
  const texts = [old, ...facts.warnings].filter(Boolean).map(shown);
  const notices = find("notices");
  if (notices.dataset.text !== texts.join("\n")) {
    notices.dataset.text = texts.join("\n");
    const [first, ...rest] = texts;
    notices.replaceChildren();
    if (first) notices.append(h("p.notice", {}, first));
    if (rest.length) {
      notices.append(h("details.notice", {}, h("summary", {}, plural(rest.length, "more warning")),
        rest.map(text => h("p", {}, text))));
    }
  }
  const count = document.querySelector("#nav .count");
  if (count) count.textContent = facts.waiting ? facts.waiting.toLocaleString("en") : "";
}

find("nav").append(...NAV.map(([kind, title]) => h("a", {href: `#/${kind}`, "data-view": kind},
  title, kind === "waiting" && h("span.count"))));
subscribe(() => {
  head();
  if (view) view.draw();
});
window.addEventListener("hashchange", route);
window.addEventListener("keydown", event => {
  const typing = event.target instanceof Element && event.target.closest("input, textarea, select");
  if (event.key === "/" && !typing) {
    const search = document.querySelector("input[type=search]");
    if (search instanceof HTMLElement) {
      event.preventDefault();
      search.focus();
    }
  }
  if (event.key === "Escape" && !typing && view && location.hash.startsWith("#/node/")) {
    location.hash = "#/fleet";
  }
});
timeline(find("time"));
route();
connect();
