// @ts-check
/** The cluster as this page knows it, kept up to date by server-sent events. */

import {ask, isAsking} from "./access.js";
import {clock} from "./dom.js";
import {byName} from "./elements.js";
import {FREE, NAME, STATES, STRANDED} from "./rows.js";

const ERRORS = 3, NEXT = 50, AGAIN = 2000, HIDDEN = 60_000, SILENT = 45_000;

/** @typedef {import("./rows.js").Row} Row */

export const store = {
  /** @type {Map<string, Row>} */
  rows: new Map(),
  /** @type {any} */
  facts: null,
  version: "",
  /** The server's time less ours [s]. */
  ahead: 0,
  /**
   * An earlier moment that is shown, or null.
   * @type {{at: number, rows: Map<string, Row>, waiting: {count: number, first: any[]}} | null}
   */
  past: null,
  /** A manifest's placement: GPUs by node, or null. @type {Map<string, number[]> | null} */
  trial: null,
  connected: false,
};

/** @type {Set<() => void>} */
const listeners = new Set();
let heard = 0;
/** What ends the requests for events, or null where none are made. @type {AbortController | null} */
let following = null;
/** @type {number | undefined} */
let timer;

/** Call a function after each change; return a function that ends this. */
export function subscribe(/** @type {() => void} */ listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function changed() {
  for (const listener of [...listeners]) listener();
}

/** Return the rows that are shown. */
export const rows = () => store.past ? store.past.rows : store.rows;

/** Return the totals of the rows that are shown. */
export function totals() {
  let gpus = 0, free = 0, stranded = 0;
  for (const row of rows().values()) {
    gpus += row[STATES].length;
    free += row[FREE];
    stranded += row[STRANDED];
  }
  return {gpus, free, stranded, nodes: rows().size};
}

/** Return the server's time [s since 1970]. */
export const now = () => Date.now() / 1000 + store.ahead;

/** Return why what is shown may be old; empty where it is not. */
export function staleness() {
  if (!store.facts) return "";
  if (!store.connected) return "The server of this page has ended, or does not answer.";
  const {problem, at} = store.facts;
  return problem && `The cluster is not watched now: ${problem}. What is shown is of ${clock(at)}.`;
}

function take(/** @type {any} */ update, /** @type {string} */ id) {
  heard = Date.now();
  store.connected = true;
  store.facts = update.facts;
  store.version = id;
  store.ahead = update.facts.now - Date.now() / 1000;
  if (update.full) {
    store.rows = new Map();
    // What is sorted already is sorted fast after each change.
    update.nodes.sort((/** @type {Row} */ a, /** @type {Row} */ b) => byName(a[NAME], b[NAME]));
  }
  for (const row of update.nodes) store.rows.set(row[NAME], row);
  for (const name of update.gone) store.rows.delete(name);
  changed();
}

/** Take one event after the other. EventSource sends no token, so these are requests. */
async function follow(/** @type {AbortSignal} */ signal) {
  for (let last = "", errors = 0; !signal.aborted;) {
    try {
      const response = await ask("api/events", {signal, headers: {"Last-Event-ID": last}});
      if (!response.ok) throw new Error(await response.text());
      const lines = (await response.text()).split("\n").map(line => line.split(/: (.*)/s));
      const event = Object.fromEntries(lines);
      take(JSON.parse(event.data), event.id);
      [last, errors] = [event.id, 0];
    } catch {
      if (signal.aborted) return;
      errors += 1;
      if (errors >= ERRORS && store.connected) {
        store.connected = false;
        changed();
      }
    }
    await new Promise(resolve => window.setTimeout(resolve, errors < ERRORS ? NEXT : AGAIN));
  }
}

function disconnect() {
  window.clearTimeout(timer);
  if (following) following.abort();
  following = null;
}

export function connect() {
  disconnect();
  following = new AbortController();
  follow(following.signal);
}

/* A page that nobody sees needs no events, and a browser has few connections for all its tabs. */
document.addEventListener("visibilitychange", () => {
  window.clearTimeout(timer);
  if (document.hidden) timer = window.setTimeout(disconnect, HIDDEN);
  else if (!following) connect();
});
window.setInterval(() => {
  if (following && !isAsking() && heard && Date.now() - heard > SILENT) {
    store.connected = false;
    changed();
    connect();
  }
}, 5000);

/**
 * Return a view's document; null where there is no such object.
 * @param {string} view Its name.
 * @param {Record<string, string>} [query] Its parameters.
 */
export async function fetched(view, query = {}) {
  const words = new URLSearchParams(query).toString();
  const response = await ask(`api/${view}${words && `?${words}`}`);
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}
