// @ts-check
/** The token that a server in a cluster wants. It is kept in the memory of this page alone. */

import {h, shown} from "./elements.js";

let token = "";
/** @type {Promise<void> | null} */
let asking = null;

/** Return whether the person is asked for a token now. */
export const isAsking = () => asking !== null;

/**
 * Return the answer to a request. Where the server wants a token, the person is asked for it first.
 * @param {string} path
 * @param {RequestInit & {headers?: Record<string, string>}} [options]
 */
export async function ask(path, options = {}) {
  for (;;) {
    const sent = token;
    const headers = sent ? {...options.headers, Authorization: `Bearer ${sent}`} : options.headers;
    const response = await fetch(path, {...options, headers});
    if (!response.headers.has("WWW-Authenticate")) return response;
    const reason = await response.text();
    // Another request may have got a new one meanwhile.
    if (sent === token) await (asking ??= signIn(sent ? reason : ""));
  }
}

/** Ask the person for a token; the reason says why the last one was refused. */
async function signIn(/** @type {string} */ reason) {
  const field = /** @type {HTMLInputElement} */(h("input", {type: "password", id: "token", autocomplete: "off",
    spellcheck: "false", required: true, "aria-describedby": "token-reason"}));
  const dialog = /** @type {HTMLDialogElement} */(h("dialog.sign-in", {"aria-labelledby": "sign-in",
    oncancel: (/** @type {Event} */ event) => event.preventDefault()},
    h("h2", {id: "sign-in"}, "Sign in"),
    h("p", {}, "Paste a token. This page keeps it until it is closed or loaded again."),
    h("p.mono.quiet", {}, "kubectl create token ACCOUNT --namespace NAMESPACE --audience linkwise-dashboard"),
    h("p", {id: "token-reason", role: "alert"}, shown(reason.trim())),
    h("form", {onsubmit: (/** @type {Event} */ event) => {
      event.preventDefault();
      token = field.value.replace(/[^\x21-\x7e]/g, "");
      if (token) dialog.close();
    }}, h("label", {for: "token"}, "Token"), field, h("button.primary", {type: "submit"}, "Show the cluster"))));
  document.body.append(dialog);
  dialog.showModal();
  await new Promise(resolve => dialog.addEventListener("close", resolve, {once: true}));
  dialog.remove();
  asking = null;
}
