"use strict";
const fleet = JSON.parse(document.getElementById("fleet-data").textContent);
const [NAME, POOL, MODEL, MODE, STATES, USED, FREE, STRANDED, DRAWING, LINKS, PROBLEMS, HOLDERS,
  NOTES] = Array(13).keys();
const FEW = 12, BIG = 48, MIDDLE = 800;
const WORDS = {".": "free", "#": "held", "+": "placed now", "c": "held by count", "?": "unknown",
  "x": "unhealthy", "o": "cordoned"};
const find = id => document.getElementById(id);
const make = (tag, className, text) => {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
};
const plural = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
const texts = new Map();

/* Everything of a node that the search looks through. */
function searched(index) {
  if (!texts.has(index)) {
    const node = fleet.nodes[index];
    const pods = node[HOLDERS].map(([ns, pod, gang]) =>
      `${fleet.namespaces[ns]}/${pod} ${gang < 0 ? "" : fleet.gangs[gang]}`);
    texts.set(index, [node[NAME], fleet.pools[node[POOL]], fleet.models[node[MODEL]],
      fleet.modes[node[MODE]], ...node[PROBLEMS], ...pods].join("\n").toLowerCase());
  }
  return texts.get(index);
}

const KINDS = {
  all: () => true,
  free: node => !node[USED] && node[FREE],
  partly: node => node[USED] && node[FREE],
  shared: node => /[1-8]/.test(node[STATES]),
  full: node => !node[FREE],
  new: node => node[HOLDERS].some(holder => holder[5]),
  faulty: node => node[PROBLEMS].length,
};
const ORDERS = {
  name: () => 0,
  free: (a, b) => b[FREE] - a[FREE],
  used: (a, b) => b[USED] - a[USED],
  fragmented: (a, b) => b[STRANDED] - a[STRANDED],
};

function heat(node, colour) {
  const used = node[USED];
  if (colour === "used") {
    return used === 0 ? "h0" : used === 100 ? "h5" : `h${1 + Math.min(3, Math.floor(used / 25))}`;
  }
  if (!node[FREE]) return "full";
  return node[STRANDED] ? `f${Math.ceil(3 * node[STRANDED] / node[STATES].length)}` : "f0";
}

function summary(node) {
  const total = node[STATES].length;
  const words = [`${node[FREE]} of ${plural(total, "GPU")} free`];
  if (/[1-9]/.test(node[STATES])) words.push(`${node[USED]} % allocated`);
  return [...words, ...node[PROBLEMS]].join(", ");
}

function strip(states) {
  const made = make("span", "cells");
  for (const one of states) {
    const cell = make("i", `g ${/[0-9]/.test(one) ? "part" : "s" + ".#+c?xo".indexOf(one)}`);
    if (/[1-9]/.test(one)) {
      cell.append(make("b"));
      cell.firstChild.style.height = `${100 * one / 9}%`;
    }
    made.append(cell);
  }
  return made;
}

function cell(index, size, colour) {
  const node = fleet.nodes[index];
  const made = make("button", `n ${heat(node, colour)}${node[PROBLEMS].length ? " faulty" : ""}`);
  made.type = "button";
  made.tabIndex = -1;
  made.dataset.node = index;
  made.title = `${node[NAME]}: ${summary(node)}`;
  made.setAttribute("aria-label", made.title);
  if (size === "middle") made.textContent = node[FREE];
  if (size === "big") made.append(make("span", "name", node[NAME]), strip(node[STATES]),
    make("span", "left", summary(node)));
  return made;
}

function groupsOf(indices, field, names) {
  const found = new Map();
  for (const index of indices) {
    const key = field === null ? "" : names[fleet.nodes[index][field]];
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(index);
  }
  return [...found].sort(([a], [b]) => (a === "") - (b === "") || a.localeCompare(b, "en",
    {numeric: true}));
}

function groupHead(name, indices, unnamed) {
  const gpus = indices.reduce((sum, i) => sum + fleet.nodes[i][STATES].length, 0);
  const free = indices.reduce((sum, i) => sum + fleet.nodes[i][FREE], 0);
  const stranded = indices.reduce((sum, i) => sum + fleet.nodes[i][STRANDED], 0);
  const head = make("div", "group-head");
  head.append(make("h3", "", name || unnamed), make("span", "quiet small",
    `${plural(indices.length, "node")} · ${free.toLocaleString("en")} of ` +
    `${plural(gpus, "GPU")} free${!stranded ? "" : stranded === free
      ? ", all on partly allocated nodes"
      : `, ${stranded.toLocaleString("en")} of them on partly allocated nodes`}`));
  return head;
}

function draw() {
  const query = find("search").value.trim().toLowerCase();
  const kind = KINDS[find("show").value], order = ORDERS[find("sort").value];
  const colour = find("colour").value, group = find("group").value;
  const indices = fleet.nodes.map((_, index) => index).filter(index =>
    kind(fleet.nodes[index]) && (!query || searched(index).includes(query)));
  indices.sort((a, b) => order(fleet.nodes[a], fleet.nodes[b]) || a - b);
  const size = indices.length <= BIG ? "big" : indices.length <= MIDDLE ? "middle" : "tiny";
  const [field, names, unnamed] = {pool: [POOL, fleet.pools, "No pool label"],
    model: [MODEL, fleet.models, "Model unknown"], mode: [MODE, fleet.modes, ""],
    none: [null, [], "All nodes"]}[group];
  const made = document.createDocumentFragment();
  for (const [name, members] of groupsOf(indices, field, names)) {
    const grid = make("div", `grid ${size}`);
    for (const index of members) grid.append(cell(index, size, colour));
    const section = make("section", "group");
    section.append(groupHead(name, members, unnamed), grid);
    made.append(section);
  }
  const map = find("map");
  map.replaceChildren(made);
  const first = map.querySelector("button.n");
  if (first) first.tabIndex = 0;
  find("count").textContent = `${indices.length.toLocaleString("en")} of ` +
    `${plural(fleet.nodes.length, "node")}${indices.length ? "" : ": nothing matches"}`;
  for (const legend of document.querySelectorAll(".scale")) {
    legend.hidden = legend.dataset.colour !== colour;
  }
  find("number").hidden = size !== "middle";
  find("gpu-signs").hidden = size !== "big";
}

/* Arrows go from node to node; Tab leaves the map. */
function move(event) {
  const here = event.target.closest("button.n");
  const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
  if (!here) return;
  const all = [...find("map").querySelectorAll("button.n")];
  let next = step && all[all.indexOf(here) + step];
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    const down = event.key === "ArrowDown", at = here.getBoundingClientRect();
    const rows = all.filter(one => down ? one.getBoundingClientRect().top > at.bottom - 1
      : one.getBoundingClientRect().bottom < at.top + 1);
    if (!down) rows.reverse();
    next = rows.find(one => Math.abs(one.getBoundingClientRect().left - at.left) < at.width / 2)
      || rows[0];
  }
  if (!next) return;
  event.preventDefault();
  here.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

const tileWord = (one, counted) => counted ? "" : /[0-9]/.test(one) ? "" : WORDS[one];

function fill(svg, node) {
  const counted = node[STATES].includes("c") && node[FREE] > 0;
  svg.querySelectorAll("rect.tile").forEach((tile, i) => {
    const state = node[STATES][i], one = state === "c" && !counted ? "#" : state, word = tile.parentNode.querySelector("text.word");
    const title = tile.parentNode.querySelector("title");
    if (title) title.textContent = `GPU${i}`;
    if (word) word.textContent = tileWord(one, counted);
    const looks = {"#": "held", "+": "placed", "x": "free faulty", "o": "free faulty"}[one] || "free";
    tile.setAttribute("class", `tile ${looks}`);
    if (one === "+") tile.parentNode.setAttribute("class", "on u0");
    const slot = tile.parentNode.querySelector("rect.slot");
    if (slot && /[1-9]/.test(one)) {
      const part = slot.cloneNode();
      part.setAttribute("class", "part held");
      part.setAttribute("width", slot.getAttribute("width") * one / 9);
      slot.after(part);
      if (word) word.textContent = one === "9" ? "full" : "shared";
    }
  });
}

function holders(node) {
  const table = make("table"), head = table.createTHead().insertRow(), body = table.createTBody();
  for (const text of ["Pod", "GPUs", "Gang"]) {
    head.append(make("th", "", text));
  }
  for (const [ns, pod, gang, gpus, amount, isNew] of node[HOLDERS]) {
    const row = body.insertRow(), who = row.insertCell();
    who.append(make("bdi", "", `${fleet.namespaces[ns]}/${pod}`));
    if (isNew) who.append(" ", make("span", "chip u0", "new"));
    row.insertCell().textContent = [gpus.join(" "), fleet.amounts[amount]].filter(Boolean)
      .join(" · ");
    row.insertCell().append(make("bdi", "", gang < 0 ? "–" : fleet.gangs[gang]));
  }
  return table;
}

function open(index) {
  const node = fleet.nodes[index], dialog = find("node"), body = make("div", "halves");
  const template = find(`d${node[DRAWING]}`), left = make("div");
  if (template) {
    left.append(template.content.cloneNode(true));
    const svg = left.querySelector("svg");
    svg.setAttribute("aria-label", `Links of ${node[NAME]}`);
    fill(svg, node);
  } else left.append(make("p", "quiet", "It offers no GPUs now."));
  const right = make("div");
  const told = [];
  if (node[STATES].includes("c")) told.push("NVIDIA's device plugin chooses the GPUs; "
    + `${node[STATES].split("c").length - 1} of ${node[STATES].length} are allocated.`);
  told.push(...node[NOTES]);
  if (node[LINKS]) told.push(`Its free GPUs reach ${node[LINKS][0].toFixed(1)} GB/s together; `
    + `as many of an empty one reach ${node[LINKS][1].toFixed(1)} GB/s at best.`);
  right.append(...told.map(text => make("p", "", text)));
  right.append(node[HOLDERS].length ? holders(node) : make("p", "quiet", "No pod has any GPU here."));
  body.append(left, right);
  const head = make("div", "head"), close = make("button", "close", "Close");
  close.type = "button";
  close.addEventListener("click", () => dialog.close());
  head.append(make("h3", "", node[NAME]), close);
  const facts = [fleet.models[node[MODEL]] || "model unknown", `mode ${fleet.modes[node[MODE]]}`,
    fleet.pools[node[POOL]] && `pool ${fleet.pools[node[POOL]]}`, summary(node)];
  dialog.replaceChildren(head, make("p", "quiet small", facts.filter(Boolean).join(" · ")), body);
  dialog.showModal();
}

find("map").addEventListener("click", event => {
  const here = event.target.closest("button.n");
  if (here) open(here.dataset.node);
});
find("map").addEventListener("keydown", move);
find("node").addEventListener("click", event => {
  if (event.target === find("node")) find("node").close();
});
for (const id of ["search", "colour", "group", "sort", "show"]) {
  find(id).addEventListener("input", draw);
}
for (const button of document.querySelectorAll("button[data-search]")) {
  button.addEventListener("click", () => {
    find("search").value = button.dataset.search;
    draw();
    find("fleet").scrollIntoView();
  });
}
if (fleet.pools.length < 2) find("group").value = fleet.models.length > 1 ? "model" : "none";
if (fleet.nodes.length <= FEW) find("group").value = "none";
draw();

/* The search for gangs and pods of a simulation; it unfolds what it looks through. */
const finder = find("find-unit");
if (finder) {
  const units = [...document.querySelectorAll(".unit")];
  const folds = [...document.querySelectorAll(".fold")];
  const groups = [...document.querySelectorAll(".results, .results > .card, .results > .fold")]
    .map(group => [group, [...group.querySelectorAll(".unit")]]);
  const content = units.map(unit => unit.textContent.toLowerCase());
  find("unit-search").hidden = false;
  finder.addEventListener("input", () => {
    const query = finder.value.trim().toLowerCase();
    units.forEach((unit, i) => { unit.hidden = !content[i].includes(query); });
    for (const fold of folds) fold.open = query !== "";
    for (const [group, inner] of groups) group.hidden = inner.every(unit => unit.hidden);
    const shown = units.filter(unit => !unit.hidden).length;
    find("unit-count").textContent = query &&
      `${shown.toLocaleString("en")} of ${plural(units.length, "result")}`;
  });
}
