// @ts-check
/** Checks and simulates a manifest on the state that is shown; nothing is created. */

import {ask} from "./access.js";
import {drawing, link} from "./dom.js";
import {h, nameOf, plural, shown} from "./elements.js";
import {changed, store} from "./store.js";

const BYTES = 1 << 20;
let text = "", /** @type {any} */ report = null;

/** @returns {import("./app.js").View} */
export function trial(/** @type {HTMLElement} */ place) {
  const area = /** @type {HTMLTextAreaElement} */(h("textarea", {id: "manifest", spellcheck: "false", rows: "14",
    "aria-label": "Manifest", placeholder: "Paste YAML or JSON here, or drop a file",
    oninput: () => { text = area.value; number(); }}));
  area.value = text;
  const gutter = h("pre.gutter", {"aria-hidden": "true"});
  const result = h("div", {"aria-live": "polite"});
  const button = h("button.primary", {type: "button", onclick: () => run()}, "Try it");
  const clear = h("button.plain", {type: "button", onclick: () => {
    [text, report, store.trial] = ["", null, null];
    area.value = "";
    number();
    show();
    changed();
  }}, "Clear");
  const editor = h("div.editor", {}, gutter, area);
  place.append(h("h1", {}, "Try a manifest"),
    h("p.quiet", {}, "It is checked as at admission and placed on the state that is shown. Nothing is created, "
      + "and only the server of this page gets it."), h("div.card", {}, editor, h("div.buttons", {}, button, clear)), result);

  /** @type {Set<number>} */
  let marked = new Set();
  function number() {
    const lines = text.split("\n").length;
    gutter.replaceChildren(...Array.from({length: Math.min(lines, 5000)}, (_, i) =>
      h(marked.has(i + 1) ? "b" : "span", {}, `${i + 1}\n`)));
    area.rows = Math.max(10, Math.min(lines + 1, 36));
  }

  async function run() {
    if (new TextEncoder().encode(text).length > BYTES) {
      report = {problems: ["The manifest has more than 1 MiB."], warnings: [], items: [], pods: [], gangs: [],
        taken: [], nodes: []};
      return show();
    }
    button.setAttribute("disabled", "");
    try {
      const response = await ask("api/trial", {method: "POST", body: text,
        headers: {"Content-Type": "application/yaml"}});
      if (!response.ok) throw new Error(await response.text());
      report = await response.json();
      store.trial = report.taken.length ? new Map(report.taken.map((/** @type {any} */ each) =>
        [each.node, each.gpus])) : null;
    } catch (error) {
      report = {problems: [String(error)], warnings: [], items: [], pods: [], gangs: [], taken: [], nodes: []};
      store.trial = null;
    } finally {
      button.removeAttribute("disabled");
    }
    show();
    changed();
  }

  function show() {
    const lines = (report ? [...report.problems, ...report.items.flatMap((/** @type {any} */ item) =>
      item.findings.map((/** @type {any} */ finding) => finding.source))] : []).map(lineOf).filter(Boolean);
    marked = new Set(/** @type {number[]} */(lines));
    number();
    result.replaceChildren(...(report ? results(report, go) : []));
  }

  function go(/** @type {number} */ line) {
    const before = text.split("\n").slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    const end = text.indexOf("\n", before);
    area.focus();
    area.setSelectionRange(before, end < 0 ? text.length : end);
    area.scrollIntoView({block: "nearest"});
  }

  place.addEventListener("dragover", event => {
    event.preventDefault();
    editor.classList.add("over");
  });
  place.addEventListener("dragleave", () => editor.classList.remove("over"));
  place.addEventListener("drop", async event => {
    event.preventDefault();
    editor.classList.remove("over");
    const file = event.dataTransfer?.files[0];
    if (!file) return;
    if (file.size > BYTES) text = "";
    else text = await file.text();
    area.value = text;
    number();
    run();
  });
  show();
  return {title: "Try a manifest", draw: () => {}};
}

const lineOf = (/** @type {string} */ text) => Number(/^manifest:(\d+)/.exec(text)?.[1] ?? 0);

function results(/** @type {any} */ of, /** @type {(line: number) => void} */ go) {
  const placed = of.pods.filter((/** @type {any} */ pod) => pod.node).length;
  const at = (/** @type {string} */ source) => {
    const line = lineOf(source);
    return line ? h("button.link", {type: "button", onclick: () => go(line)}, `line ${line}`) : source;
  };
  const summary = !of.pods.length ? "" : `${placed} of ${plural(of.pods.length, "pod")} would be placed`;
  return [
    ...of.problems.map((/** @type {string} */ text) => h("p.notice", {}, at(text), " ",
      shown(text.replace(/^manifest:\d+: ?/, "")))),
    ...of.warnings.map((/** @type {string} */ text) => h("p.notice.mild", {}, shown(text))),
    summary && h("div.title", {}, h("h2", {}, summary),
      of.taken.length ? h("a.status", {href: "#/fleet"}, "See it on the map") : null),
    ...of.items.filter((/** @type {any} */ item) => item.findings.length).map((/** @type {any} */ item) =>
      h("article.card", {}, h("div.head", {}, h("h2", {}, `${shown(item.kind)} `, nameOf(item.name)),
        h(`span.status.${item.verdict === "denied" ? "bad" : "quiet"}`, {}, item.verdict)),
      item.findings.map((/** @type {any} */ finding) => h("div.finding", {},
        h("p", {}, h("b", {}, finding.code), " ", at(finding.source), ": ", shown(finding.message)),
        h("p", {}, "Fix: ", shown(finding.fix)), h("p.mono.quiet", {}, shown(finding.field)))))),
    ...of.gangs.map((/** @type {any} */ gang) => h("article.card", {},
      h("div.head", {}, h("h2", {}, "Gang ", nameOf(gang.name)),
        h("span.quiet.small", {}, plural(gang.size, "member")),
        h(`span.status.${gang.placed ? "good" : "bad"}`, {}, gang.placed ? "✓ placed" : gang.never ? "✕ never fits" : "waits")),
      gang.placed ? h("p", {}, gang.nodes.map((/** @type {string} */ node, /** @type {number} */ i) =>
        [i ? ", " : "", h("a", {href: link("node", node)}, nameOf(node)),
          gang.gpus[node]?.length ? `: ${gang.gpus[node].join(" ")}` : ""]),
      gang.bandwidth ? ` · ${gang.bandwidth} GB/s, at best ${gang.best_possible ?? "–"}` : "") : h("p", {}, shown(gang.reason ?? "")))),
    singles(of),
    h("div.figures.many", {}, of.nodes.map((/** @type {any} */ node) => h("section.card.figure", {},
      h("h2", {}, h("a", {href: link("node", node.name)}, nameOf(node.name))), drawing(node.drawing)))),
  ].filter(Boolean);
}

function singles(/** @type {any} */ of) {
  const alone = of.pods.filter((/** @type {any} */ pod) => !pod.gang);
  if (!alone.length) return null;
  return h("div.card", {}, h("table", {}, h("thead", {}, h("tr", {}, ["Pod", "Node", "GPUs", "Reason"].map(words =>
    h("th", {scope: "col"}, words)))), h("tbody", {}, alone.slice(0, 200).map((/** @type {any} */ pod) => h("tr", {},
    h("th", {scope: "row"}, nameOf(pod.name)),
    h("td", {}, pod.node ? h("a", {href: link("node", pod.node)}, nameOf(pod.node)) : "–"),
    h("td", {}, pod.gpus ? pod.gpus.join(" ") : "–"), h("td", {}, shown(pod.reason ?? "")))))));
}
