// @ts-check
/** The last hour as a line of free GPUs, with a scrubber that shows the cluster as it was. */

import {choices, choose} from "./address.js";
import {clock, duration, s} from "./dom.js";
import {h} from "./elements.js";
import {changed, fetched, now, store, subscribe} from "./store.js";
import {NAME} from "./rows.js";

const WIDTH = 1000, HEIGHT = 44, PAUSE = 5000;

export function timeline(/** @type {HTMLElement} */ place) {
  /** @type {number[][]} */
  let samples = [];
  let asked = 0, wanted = 0, busy = false;
  const words = h("span.moment");
  const range = /** @type {HTMLInputElement} */(h("input", {type: "range", min: "0", max: "1000", value: "1000",
    "aria-label": "Moment that is shown", oninput: () => scrub()}));
  const live = h("button.plain", {type: "button", onclick: () => back()}, "Now");
  const chart = s("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true"});
  place.append(h("div.track", {}, chart, range), words, live);

  const start = () => store.facts?.start ?? now();

  function scrub() {
    const part = Number(range.value) / 1000;
    if (part >= 1) back();
    else show(Math.round(start() + part * (now() - start())));
  }

  /** Show an earlier moment [s since 1970], and write it into the address. */
  async function show(/** @type {number} */ moment) {
    wanted = moment;
    choose("at", String(wanted));
    words.textContent = clock(wanted);
    if (busy) return;
    busy = true;
    try {
      for (let at = 0; at !== wanted;) {
        at = wanted;
        const past = await fetched("past", {at: String(at)});
        const byName = past.nodes.map((/** @type {any} */ row) => [row[NAME], row]);
        if (wanted) store.past = {at, rows: new Map(byName), waiting: past.waiting};
        changed();
      }
    } finally {
      busy = false;
    }
  }

  function back() {
    [wanted, range.value, store.past] = [0, "1000", null];
    choose("at", "");
    changed();
  }

  /** Show the moment of the address; an address without one gets that which is shown. */
  function follow() {
    if (!store.facts?.live) return;
    const at = Math.round(Number(choices().get("at")));
    if (!at) choose("at", wanted ? String(wanted) : "");
    else if (at >= now()) back();
    else if (at !== wanted) {
      const moment = Math.max(at, Math.ceil(start()));
      range.value = String(Math.round(1000 * (moment - start()) / (now() - start())));
      show(moment);
    }
  }

  function draw() {
    if (!store.facts) return;
    follow();
    place.hidden = !store.facts.live && !store.past;
    document.body.classList.toggle("past", store.past !== null);
    live.toggleAttribute("disabled", store.past === null);
    words.textContent = store.past
      ? `${clock(store.past.at)}, ${duration(now() - store.past.at)} ago` : "Now";
    range.setAttribute("aria-valuetext", words.textContent);
    if (!place.hidden && Date.now() - asked > PAUSE) {
      asked = Date.now();
      fetched("samples").then(result => { samples = result; paint(); }, () => {});
    }
  }

  /** Draw allocated GPUs over time; the line holds until the next sample. */
  function paint() {
    if (!samples.length) return;
    const [from, to] = [start(), Math.max(now(), start() + 1)];
    const most = Math.max(...samples.map(([, gpus]) => gpus), 1);
    const x = (/** @type {number} */ at) => Math.max(0, WIDTH * (at - from) / (to - from));
    const y = (/** @type {number[]} */ [, gpus, free]) => HEIGHT - (HEIGHT - 4) * (gpus - free) / most;
    const points = samples.flatMap((sample, i) =>
      [`${x(sample[0])} ${y(sample)}`, `${i + 1 < samples.length ? x(samples[i + 1][0]) : WIDTH} ${y(sample)}`]);
    chart.replaceChildren(s("path", {class: "area", d: `M${x(samples[0][0])} ${HEIGHT}L${points.join("L")}L${WIDTH} ${HEIGHT}Z`}),
      s("path", {class: "level", d: `M${points.join("L")}`}));
  }

  subscribe(draw);
  window.addEventListener("hashchange", follow);
}
