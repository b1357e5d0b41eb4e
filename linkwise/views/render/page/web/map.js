// @ts-check
/** The map of all nodes. Only the part that is seen has elements, so 5,000 nodes stay fluid. */

import {byName, h, nameOf, plural, shown} from "./elements.js";
import {COLOUR, DOMAIN, FREE, GPUS, HOLDERS, MODE, MODEL, NAME, POOL, PROBLEMS, STATES, STRANDED, USED,
  heat, searched, summary} from "./rows.js";

/** @typedef {import("./rows.js").Row} Row */
/**
 * The nodes of a map, and the page around it.
 * @typedef {object} Fleet
 * @property {() => Map<string, Row>} rows All nodes, by name.
 * @property {() => Map<string, number[]> | null} marked Nodes with the GPUs that are marked, or null.
 * @property {() => boolean} [hidesMarks] Marks are not drawn now.
 * @property {[string, string]} marks What is marked, as a choice of nodes and as a sign.
 * @property {Record<string, string>} chosen The choices, by control.
 * @property {(id: string, value: string) => void} [choose] Is called after a choice.
 * @property {string[]} hidden Choices that are not offered.
 * @property {string} heading The tag of a group's name.
 * @property {(name: string) => HTMLElement} opener Makes the link or button that opens a node.
 */

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
  trial: ["", (/** @type {Row} */ row, /** @type {Fleet} */ fleet) => fleet.marked()?.has(row[NAME])],
};
const ORDERS = {
  name: ["Name", () => 0],
  free: ["Most free", (/** @type {Row} */ a, /** @type {Row} */ b) => b[FREE] - a[FREE]],
  used: ["Most allocated", (/** @type {Row} */ a, /** @type {Row} */ b) => b[USED] - a[USED]],
  fragmented: ["Most fragmented", (/** @type {Row} */ a, /** @type {Row} */ b) => b[STRANDED] - a[STRANDED]],
};
const GROUPS = {pool: ["Pool", POOL], model: ["GPU model", MODEL], domain: ["Network domain", DOMAIN],
  mode: ["Mode", MODE], none: ["None", -1]};
const COLOURS = {units: ["Gangs"], used: ["Utilization"], fragmented: ["Fragmentation"]};
const DENSITIES = {auto: ["Automatic"], cards: ["Cards"], gpus: ["GPUs"], dots: ["Dots"]};
export const CONTROLS = {colour: ["Colour", COLOURS], group: ["Group", GROUPS],
  sort: ["Sort", ORDERS], show: ["Show", KINDS], size: ["Size", DENSITIES]};

/** The choices of a map that nobody has changed. */
export const USUAL = {search: "", colour: "units", group: "model", sort: "name", show: "all", size: "auto"};

/** Make a cell for each GPU of a node. */
function cells(/** @type {Fleet} */ fleet, /** @type {Row} */ row, /** @type {Row | undefined} */ before) {
  /** @type {Map<number, any>} */
  const holders = new Map();
  for (const pod of row[HOLDERS]) for (const i of pod[GPUS]) holders.set(i, pod);
  const tried = fleet.hidesMarks?.() ? [] : fleet.marked()?.get(row[NAME]) ?? [];
  return h("span.cells", {"aria-hidden": "true"}, [...row[STATES]].map((state, i) => {
    const pod = holders.get(i);
    const look = state === "x" || state === "o" ? "bad" : state === "?" ? "unsure"
      : /[1-9]/.test(state) ? "part" : state === "." || state === "0" ? "free" : "held";
    const fresh = before && before[STATES][i] !== state ? ".fresh" : "";
    const colour = pod && look === "held" && fleet.chosen.colour === "units" ? `.u${pod[COLOUR]}` : "";
    const made = h(`i.g.${look}${colour}${tried.includes(i) ? ".trial" : ""}${fresh}`);
    if (look === "part") {
      const level = h("b");
      level.style.height = `${100 * Number(state) / 9}%`;
      made.append(level);
    }
    return made;
  }));
}

/**
 * Make a map.
 * @param {HTMLElement} place
 * @param {Fleet} fleet
 */
export function fleetMap(place, fleet) {
  const {chosen, rows} = fleet;
  const count = h("span.quiet.small", {role: "status", id: "count"});
  const keys = h("div.legend-line");
  const map = h("div", {id: "map", "aria-label": "Nodes"});
  const search = h("input", {type: "search", id: "search", placeholder: "node, pod, gang, namespace/ …"});
  /** @type {Record<string, any>} */
  const controls = {search};
  const selects = Object.entries(CONTROLS).map(([id, [title, options]]) => {
    const offered = Object.entries(options).filter(([value]) => !fleet.hidden.includes(value));
    controls[id] = h("select", {id}, offered.map(([value, [words]]) => h("option", {value}, words || fleet.marks[0])));
    return h("label", {}, title, controls[id]);
  });
  for (const [id, control] of Object.entries(controls)) {
    control.value = chosen[id];
    control.addEventListener("input", () => pick(id, control.value));
  }
  place.append(h("div.controls", {}, h("label", {}, "Search", search), selects), h("div.keys", {}, keys, count), map);

  /** @type {{top: number, height: number, key: string, names: Row[], head?: HTMLElement}[]} */
  let lines = [];
  /** @type {Map<number, HTMLElement>} */
  const drawn = new Map();
  /** @type {Row[]} */
  let order = [];
  let size = "cards", focused = "";

  function pick(/** @type {string} */ id, /** @type {string} */ value) {
    chosen[id] = controls[id].value = value;
    fleet.choose?.(id, value);
    draw();
  }

  function tile(/** @type {Row} */ row, /** @type {Row | undefined} */ before) {
    const faulty = row[PROBLEMS].length ? " faulty" : "";
    const tried = !fleet.hidesMarks?.() && fleet.marked()?.has(row[NAME]) ? " tried" : "";
    const look = chosen.colour === "units" && size !== "dots" ? "units" : heat(row, chosen.colour);
    const made = fleet.opener(row[NAME]);
    made.className = `node ${size} ${look}${faulty}${tried}`;
    made.tabIndex = row[NAME] === focused ? 0 : -1;
    made.title = shown(`${row[NAME]}: ${summary(row)}`);
    made.setAttribute("aria-label", made.title);
    made.dataset.node = row[NAME];
    if (size === "cards") {
      made.append(h("span.line", {}, h("span.name", {}, nameOf(row[NAME])),
        h("span.free", {}, row[FREE] ? `${row[FREE]} free` : "full")));
    }
    if (size !== "dots") made.append(cells(fleet, row, before));
    return made;
  }

  /** Put every node on a line; a line is a row of tiles or the head of a group. */
  function arrange() {
    const query = chosen.search.trim().toLowerCase();
    const kind = /** @type {any} */(KINDS)[chosen.show][1];
    const by = /** @type {any} */(ORDERS)[chosen.sort][1];
    order = [...rows().values()].filter(row => kind(row, fleet) && (!query || searched(row).includes(query)));
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
    return h("div.row.group-head", {}, h(fleet.heading, {}, key ? nameOf(key) : unnamed), h("span.quiet.small", {},
      `${plural(members.length, "node")} · ${free.toLocaleString("en")} of ${plural(gpus, "GPU")} free`
      + (stranded ? ` · ${stranded.toLocaleString("en")} beside allocated ones` : "")));
  }

  /** Draw the lines that are seen, and those near them; of a small map, and on paper, every line. */
  function paint(all = false, printed = false) {
    const whole = printed || order.length <= CARDS;
    const from = window.scrollY - map.offsetTop - BEYOND;
    const to = from + window.innerHeight + 2 * BEYOND;
    const wanted = new Set();
    lines.forEach((line, i) => {
      if (whole || (line.top + line.height >= from && line.top <= to)) wanted.add(i);
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
      made.style.order = String(i);
      if (old !== made) {
        if (old) old.remove();
        map.append(made);
        drawn.set(i, made);
      }
    }
  }

  /** Draw a line; of a line that has the same nodes only the tiles that changed. */
  function paintLine(/** @type {any} */ line, /** @type {any} */ old) {
    const look = [size, chosen.colour, Boolean(fleet.marked()), fleet.hidesMarks?.()].join();
    if (line.key.startsWith("head ")) {
      return groupHead(line.key.slice(5), line.names);
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

  function drawKeys() {
    const steps = chosen.colour === "fragmented"
      ? [["f0", "all GPUs free"], ["f1", "few GPUs free"], ["f2", "about half free"],
        ["f3", "most free, but not all"], ["full", "no GPU free"]]
      : [["h0", "none allocated"], ["h1", "under 25 %"], ["h2", "under 50 %"], ["h3", "under 75 %"],
        ["h4", "under 100 %"], ["h5", "100 %"]];
    const byUnit = chosen.colour === "units";
    const scale = !byUnit || size === "dots" ? steps.map(([kind, words]) => [`swatch.${kind}`, words]) : [];
    const signs = size === "dots" ? [] : [byUnit ? ["g.held.u1", "allocated, by gang"] : ["g.held", "allocated"],
      ["g.free", "free"], ["g.part", "shared"], ["g.bad", "unhealthy or cordoned"],
      ...(fleet.marked() ? [["g.trial", fleet.marks[1]]] : [])];
    keys.replaceChildren(...[...scale, ...signs].map(([kind, words]) => h("span", {},
      h(`i.${kind}`, {}, kind === "g.part" && h("b")), words)));
  }

  function draw() {
    arrange();
    drawKeys();
    paint(true);
    count.textContent = `${order.length.toLocaleString("en")} of ${plural(rows().size, "node")}`
      + (order.length ? "" : ": nothing matches");
  }

  const onScroll = () => paint(), onResize = () => draw(), onPrint = () => paint(false, true);
  window.addEventListener("scroll", onScroll, {passive: true});
  window.addEventListener("resize", onResize);
  window.addEventListener("beforeprint", onPrint);
  /* What is above the map may become higher or lower. */
  const observer = new ResizeObserver(onScroll);
  observer.observe(document.body);

  /* Arrows go from node to node; Tab leaves the map. */
  map.addEventListener("keydown", event => {
    const here = event.target instanceof Element && event.target.closest(".node");
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
    const target = [...map.querySelectorAll(".node")].find(one =>
      one instanceof HTMLElement && one.dataset.node === focused);
    if (target instanceof HTMLElement) {
      target.tabIndex = 0;
      target.focus({preventScroll: true});
    }
  });

  return {draw, pick, leave: () => {
    window.removeEventListener("scroll", onScroll);
    window.removeEventListener("resize", onResize);
    window.removeEventListener("beforeprint", onPrint);
    observer.disconnect();
  }};
}
