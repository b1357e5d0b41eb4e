// @ts-check
/** The map of all nodes. Only the part that is seen has elements, so 5,000 nodes stay fluid. */

import {choices, choose} from "./address.js";
import {byName, h, link, nameOf, plural, shown} from "./dom.js";
import {rows, store, COLOUR, DOMAIN, FREE, GANG, GPUS, HOLDERS, MODE, MODEL, NAME, POD,
  POOL, PROBLEMS, STATES, STRANDED, USED, totals} from "./store.js";

/** @typedef {import("./store.js").Row} Row */

const CARDS = 72, CELLS = 900, BEYOND = 500;
/** The heights of a group's head, which has two lines on a narrow screen [px]. */
const HEAD = 46, NARROW_HEAD = 70, NARROW = window.matchMedia("(max-width:520px)");
const SIZES = {cards: [178, 78, 8], gpus: [62, 40, 6], dots: [12, 12, 2]};
const KINDS = {
  all: ["All nodes", () => true],
  free: ["All GPUs free", (/** @type {Row} */ row) => !row[USED] && row[FREE]],
  partly: ["Partly allocated", (/** @type {Row} */ row) => row[USED] && row[FREE]],
  full: ["No GPU free", (/** @type {Row} */ row) => !row[FREE]],
  faulty: ["With a problem", (/** @type {Row} */ row) => row[PROBLEMS].length],
  trial: ["Of the tried manifest", (/** @type {Row} */ row) => store.trial?.has(row[NAME])],
};
const ORDERS = {
  name: ["Name", () => 0],
  free: ["Most free", (/** @type {Row} */ a, /** @type {Row} */ b) => b[FREE] - a[FREE]],
  used: ["Most allocated", (/** @type {Row} */ a, /** @type {Row} */ b) => b[USED] - a[USED]],
  fragmented: ["Most fragmented",
    (/** @type {Row} */ a, /** @type {Row} */ b) => b[STRANDED] - a[STRANDED]],
};
const GROUPS = {pool: ["Pool", POOL], model: ["GPU model", MODEL], domain: ["Network domain", DOMAIN],
  mode: ["Mode", MODE], none: ["None", -1]};
const COLOURS = {units: ["Gangs"], used: ["Utilization"], fragmented: ["Fragmentation"]};
const DENSITIES = {auto: ["Automatic"], cards: ["Cards"], gpus: ["GPUs"], dots: ["Dots"]};
const CONTROLS = {colour: ["Colour", COLOURS], group: ["Group", GROUPS],
  sort: ["Sort", ORDERS], show: ["Show", KINDS], size: ["Size", DENSITIES]};

const USUAL = {search: "", colour: "units", group: "model", sort: "name", show: "all", size: "auto"};
/** What is chosen: by the address, else the last choice of this page. */
const chosen = {...USUAL};

/** Take the choices of the address; where it has none, write the last ones into it. */
function restore() {
  const wanted = Object.entries(USUAL).map(([id, usual]) => {
    const value = choices().get(id) ?? "";
    const options = /** @type {any} */(CONTROLS)[id]?.[1];
    return [id, !options || Object.hasOwn(options, value) ? value || usual : usual];
  });
  if (Object.keys(USUAL).some(id => choices().has(id))) Object.assign(chosen, Object.fromEntries(wanted));
  for (const [id, value] of Object.entries(chosen)) write(id, value);
}

/** Write a choice into the address, which leaves out the usual one. */
const write = (/** @type {string} */ id, /** @type {string} */ value) =>
  choose(id, value === /** @type {any} */(USUAL)[id] ? "" : value);

/** Return everything of a node that the search looks through. */
const texts = new WeakMap();
function searched(/** @type {Row} */ row) {
  if (!texts.has(row)) {
    const pods = row[HOLDERS].map((/** @type {any} */ pod) => `${pod[POD]} ${pod[GANG]}`);
    texts.set(row, [row[NAME], row[POOL], row[MODEL], row[MODE], row[DOMAIN], ...row[PROBLEMS],
      ...pods].join("\n").toLowerCase());
  }
  return texts.get(row);
}

export function heat(/** @type {Row} */ row, /** @type {string} */ colour) {
  const used = row[USED];
  if (colour !== "fragmented") {
    return used === 0 ? "h0" : used === 100 ? "h5" : `h${1 + Math.min(3, Math.floor(used / 25))}`;
  }
  if (!row[FREE]) return "full";
  return row[STRANDED] ? `f${Math.ceil(3 * row[STRANDED] / row[STATES].length)}` : "f0";
}

export function summary(/** @type {Row} */ row) {
  const words = [`${row[FREE]} of ${plural(row[STATES].length, "GPU")} free`];
  if (/[1-9]/.test(row[STATES])) words.push(`${row[USED]} % allocated`);
  return [...words, ...row[PROBLEMS]].join(", ");
}

/** Make a cell for each GPU of a node. */
export function cells(/** @type {Row} */ row, /** @type {Row | undefined} */ before) {
  /** @type {Map<number, any>} */
  const holders = new Map();
  for (const pod of row[HOLDERS]) for (const i of pod[GPUS]) holders.set(i, pod);
  const tried = store.past ? [] : store.trial?.get(row[NAME]) ?? [];
  return h("span.cells", {"aria-hidden": "true"}, [...row[STATES]].map((state, i) => {
    const pod = holders.get(i);
    const look = state === "x" || state === "o" ? "bad" : state === "?" ? "unsure"
      : /[1-9]/.test(state) ? "part" : state === "." || state === "0" ? "free" : "held";
    const fresh = before && before[STATES][i] !== state ? ".fresh" : "";
    const colour = pod && look === "held" && chosen.colour === "units" ? `.u${pod[COLOUR]}` : "";
    const made = h(`i.g.${look}${colour}${tried.includes(i) ? ".trial" : ""}${fresh}`);
    if (look === "part") {
      const level = h("b");
      level.style.height = `${100 * Number(state) / 9}%`;
      made.append(level);
    }
    return made;
  }));
}

/** @returns {import("./app.js").View} */
export function fleet(/** @type {HTMLElement} */ place) {
  restore();
  const total = h("section.totals", {"aria-label": "Totals"});
  const count = h("span.quiet.small", {role: "status"});
  const keys = h("div.legend-line");
  const map = h("div", {id: "map", "aria-label": "Nodes"});
  const search = /** @type {HTMLInputElement} */(h("input", {type: "search", id: "search",
    placeholder: "node, pod, gang, namespace/ …", value: chosen.search,
    oninput: () => pick("search", search.value)}));
  const selects = Object.entries(CONTROLS).map(([id, [title, options]]) => {
    const select = /** @type {HTMLSelectElement} */(h("select", {id, onchange: () => pick(id, select.value)},
      Object.entries(options).map(([value, [words]]) => h("option", {value}, words))));
    select.value = chosen[/** @type {"sort"} */(id)];
    return h("label", {}, title, select);
  });
  place.append(h("h1.heard", {}, "Fleet"), total, h("div.controls", {}, h("label", {}, "Search", search), selects),
    h("div.keys", {}, keys, count), map);

  /** @type {{top: number, height: number, key: string, names: Row[], head?: HTMLElement}[]} */
  let lines = [];
  /** @type {Map<number, HTMLElement>} */
  const drawn = new Map();
  /** @type {Row[]} */
  let order = [];
  let size = "cards", focused = "";

  function pick(/** @type {string} */ id, /** @type {string} */ value) {
    chosen[/** @type {"sort"} */(id)] = value;
    write(id, value);
    draw();
  }

  function tile(/** @type {Row} */ row, /** @type {Row | undefined} */ before) {
    const faulty = row[PROBLEMS].length ? ".faulty" : "";
    const tried = !store.past && store.trial?.has(row[NAME]) ? ".tried" : "";
    const look = chosen.colour === "units" && size !== "dots" ? "units" : heat(row, chosen.colour);
    const made = h(`a.node.${size}.${look}${faulty}${tried}`, {
      href: link("node", row[NAME]), tabindex: row[NAME] === focused ? "0" : "-1",
      title: `${shown(row[NAME])}: ${shown(summary(row))}`,
      "aria-label": `${shown(row[NAME])}: ${shown(summary(row))}`,
    });
    made.dataset.node = row[NAME];
    if (size === "cards") {
      made.append(h("span.line", {}, h("span.name", {}, nameOf(row[NAME])),
        h("span.free", {}, row[FREE] ? `${row[FREE]} free` : "full")));
    }
    if (size !== "dots") made.append(cells(row, before));
    return made;
  }

  /** Put every node on a line; a line is a row of tiles or the head of a group. */
  function arrange() {
    const query = chosen.search.trim().toLowerCase();
    const kind = /** @type {any} */(KINDS)[chosen.show][1];
    const by = /** @type {any} */(ORDERS)[chosen.sort][1];
    order = [...rows().values()].filter(row => kind(row) && (!query || searched(row).includes(query)));
    order.sort((a, b) => by(a, b) || byName(a[NAME], b[NAME]));
    size = chosen.size !== "auto" ? chosen.size
      : order.length <= CARDS ? "cards" : order.length <= CELLS ? "gpus" : "dots";
    const field = /** @type {any} */(GROUPS)[chosen.group][1];
    /** @type {Map<string, Row[]>} */
    const groups = new Map();
    for (const row of order) {
      const key = field < 0 ? "" : row[field];
      const members = groups.get(key);
      if (members) members.push(row);
      else groups.set(key, [row]);
    }
    const [width, height, gap] = /** @type {any} */(SIZES)[size];
    const across = map.clientWidth || 800;
    const columns = Math.max(1, Math.floor((across + gap) / (width + gap)));
    map.dataset.columns = String(columns);
    map.style.setProperty("--columns", String(columns));
    lines = [];
    const head = NARROW.matches ? NARROW_HEAD : HEAD;
    let top = 0;
    order = [];
    for (const [key, members] of [...groups].sort(([a], [b]) => Number(a === "") - Number(b === "")
      || byName(a, b))) {
      lines.push({top, height: head, key: `head ${key}`, names: members});
      top += head;
      for (let i = 0; i < members.length; i += columns) {
        const part = members.slice(i, i + columns);
        lines.push({top, height, key: part.map(row => row[NAME]).join("\n"), names: part});
        top += height + gap;
      }
      top += 14;
      order.push(...members);
    }
    map.style.height = `${top}px`;
    if (!order.some(row => row[NAME] === focused)) focused = order.length ? order[0][NAME] : "";
  }

  function groupHead(/** @type {string} */ key, /** @type {Row[]} */ members) {
    const sum = (/** @type {(row: Row) => number} */ of) => members.reduce((n, row) => n + of(row), 0);
    const gpus = sum(row => row[STATES].length), free = sum(row => row[FREE]);
    const stranded = sum(row => row[STRANDED]);
    const unnamed = {pool: "No pool label", model: "Model unknown", domain: "No network domain",
      mode: "", none: "All nodes"}[chosen.group];
    return h("div.group-head", {}, h("h2", {}, key ? nameOf(key) : unnamed), h("span.quiet.small", {},
      `${plural(members.length, "node")} · ${free.toLocaleString("en")} of ${plural(gpus, "GPU")} free`
      + (stranded ? ` · ${stranded.toLocaleString("en")} beside allocated ones` : "")));
  }

  /** Draw the lines that are seen, and those near them. */
  function paint(/** @type {boolean} */ all = false) {
    const from = window.scrollY - map.offsetTop - BEYOND;
    const to = from + window.innerHeight + 2 * BEYOND;
    const wanted = new Set();
    lines.forEach((line, i) => {
      if (line.top + line.height >= from && line.top <= to) wanted.add(i);
    });
    for (const [i, element] of drawn) {
      if (!wanted.has(i)) {
        element.remove();
        drawn.delete(i);
      }
    }
    for (const i of wanted) {
      const line = lines[i], old = drawn.get(i);
      if (old && !all) continue;
      const made = paintLine(line, old);
      made.style.transform = `translateY(${line.top}px)`;
      if (old !== made) {
        if (old) old.remove();
        map.append(made);
        drawn.set(i, made);
      }
    }
  }

  /** Draw a line; of a line that has the same nodes only the tiles that changed. */
  function paintLine(/** @type {any} */ line, /** @type {any} */ old) {
    const look = [size, chosen.colour, store.trial ? "trial" : "", store.past ? "past" : ""].join();
    if (line.key.startsWith("head ")) {
      return Object.assign(groupHead(line.key.slice(5), line.names), {className: "row group-head"});
    }
    if (!old || old.key !== line.key || old.look !== look) {
      const made = h(`div.row.${size}`, {}, line.names.map((/** @type {Row} */ row) => tile(row, undefined)));
      return Object.assign(made, {key: line.key, look, rows: line.names});
    }
    line.names.forEach((/** @type {Row} */ row, /** @type {number} */ i) => {
      const before = old.rows[i];
      if (before === row || JSON.stringify(before) === JSON.stringify(row)) return;
      const had = old.children[i] === document.activeElement;
      const made = tile(row, before);
      old.children[i].replaceWith(made);
      if (had) made.focus();
    });
    old.rows = line.names;
    return old;
  }

  function drawTotals() {
    const {gpus, free, stranded, nodes} = totals();
    const whole = free - stranded, held = gpus - free;
    const part = (/** @type {number} */ n, /** @type {string} */ kind) => {
      const made = h(`i.${kind}`);
      made.style.flexGrow = String(n);
      return n ? made : null;
    };
    const fact = (/** @type {number} */ n, /** @type {string} */ words, /** @type {string} */ kind) =>
      h("div.fact", {}, h("b", {}, n.toLocaleString("en")), h("span", {}, kind && h(`i.key.${kind}`), words));
    total.replaceChildren(
      h("div.facts", {}, fact(free, `of ${gpus.toLocaleString("en")} GPUs free`, ""),
        fact(whole, "on nodes that are all free", "whole"), fact(stranded, "beside allocated ones", "stranded"),
        fact(held, "allocated or unusable", "held"), fact(nodes, nodes === 1 ? "node" : "nodes", "")),
      h("div.share", {role: "img", "aria-label":
        `${held} of ${gpus} GPUs allocated or unusable, ${stranded} free beside those, ${whole} on free nodes`},
      part(held, "held"), part(stranded, "stranded"), part(whole, "whole")));
  }

  function drawKeys() {
    const steps = chosen.colour === "fragmented"
      ? [["f0", "all free"], ["f1", "few free"], ["f2", "half"], ["f3", "most free"], ["full", "none free"]]
      : [["h0", "0 %"], ["h1", "25"], ["h2", "50"], ["h3", "75"], ["h4", "under 100"], ["h5", "100 %"]];
    const scale = chosen.colour !== "units" || size === "dots"
      ? steps.map(([kind, words]) => h("span", {}, h(`i.swatch.${kind}`), words)) : [];
    const signs = size === "dots" ? [] : [["g.held.u1", "allocated, by gang"], ["g.free", "free"],
      ["g.bad", "unhealthy or cordoned"], ...(store.trial ? [["g.trial", "the tried manifest"]] : [])]
      .map(([kind, words]) => h("span", {}, h(`i.${kind}`), words));
    keys.replaceChildren(...scale, ...signs);
  }

  function draw() {
    arrange();
    drawTotals();
    drawKeys();
    paint(true);
    count.textContent = `${order.length.toLocaleString("en")} of ${plural(rows().size, "node")}`
      + (order.length ? "" : ": nothing matches");
  }

  const onScroll = () => paint();
  const onResize = () => draw();
  window.addEventListener("scroll", onScroll, {passive: true});
  window.addEventListener("resize", onResize);

  /* Arrows go from node to node; Tab leaves the map. */
  map.addEventListener("keydown", event => {
    const here = event.target instanceof Element && event.target.closest("a.node");
    const columns = Number(map.dataset.columns);
    const step = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns,
      Home: -Infinity, End: Infinity}[event.key];
    if (!(here instanceof HTMLElement) || step === undefined) return;
    event.preventDefault();
    const at = order.findIndex(row => row[NAME] === here.dataset.node);
    const next = order[Math.max(0, Math.min(order.length - 1, at + step))];
    focused = next[NAME];
    here.tabIndex = -1;
    const line = lines.find(one => !one.key.startsWith("head ") && one.names.includes(next));
    if (!line) return;
    const y = map.offsetTop + line.top;
    if (y < window.scrollY + 80) window.scrollTo(0, y - 120);
    else if (y + line.height > window.scrollY + window.innerHeight - 90) {
      window.scrollTo(0, y + line.height - window.innerHeight + 120);
    }
    paint();
    const target = [...map.querySelectorAll("a.node")].find(one =>
      one instanceof HTMLElement && one.dataset.node === focused);
    if (target instanceof HTMLElement) {
      target.tabIndex = 0;
      target.focus({preventScroll: true});
    }
  });

  return {title: "Fleet", draw, leave: () => {
    window.removeEventListener("scroll", onScroll);
    window.removeEventListener("resize", onResize);
  }};
}

