// The review queue: verdicts by key, and on to the next answer without a full load.
import { localise, told } from "./console.js";

const HOLD_S = 45;
const part = () => document.getElementById("review");
let busy = false;

// Send a form and show the page that it leads to.
async function step(form, submitter) {
  if (busy) return;
  busy = true;
  const body = new URLSearchParams(new FormData(form, submitter));
  const url = submitter?.hasAttribute("formaction") ? submitter.formAction : form.action;
  part().setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(url, { method: "POST", body, headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById("review");
    if (!fresh) {
      // Signed out, or gone: as without a script.
      if (answer.redirected) location.assign(answer.url);
      else document.getElementById("main").replaceChildren(...document.adoptNode(page.getElementById("main")).childNodes);
      return;
    }
    localise(page);
    part().replaceWith(document.adoptNode(fresh));
    document.title = page.title;
    if (answer.redirected) history.replaceState(null, "", answer.url);
    shown();
  } catch {
    location.reload();
  } finally {
    busy = false;
    part()?.removeAttribute("aria-busy");
  }
}

function shown() {
  scrollTo(0, 0);
  const title = document.getElementById("asked") ?? document.getElementById("begin");
  title?.focus({ preventScroll: true });
  told(part().querySelector("[role=alert], .told[role=status]")?.textContent ?? title?.textContent ?? "");
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.closest("#review") || form.method !== "post" || event.defaultPrevented) return;
  event.preventDefault();
  step(form, event.submitter);
});

function arm() {
  const right = document.getElementById("right");
  right.classList.add("armed");
  const first = right.querySelector(right.dataset.kind === "text" ? "input" : "button:enabled, input");
  first?.focus();
  if (right.dataset.kind === "text") first?.select();
}

function disarm() {
  document.getElementById("right")?.classList.remove("armed");
  document.getElementById("asked")?.focus();
}

function digit(key) {
  const right = document.getElementById("right");
  if (right?.classList.contains("armed")) right.querySelector(`[data-digit="${key}"]:enabled`)?.click();
}

document.addEventListener("keydown", (event) => {
  if (!part() || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.key === "Escape") return disarm();
  if (event.target.matches("textarea, select, input:not([type=checkbox])") || event.repeat) return;
  if (/^[1-9]$/.test(event.key)) return digit(event.key);
  const press = { c: 1, s: 1, u: 1 }[event.key] && part().querySelector(`[data-press="${event.key}"]`);
  const others = { o: () => document.getElementById("right") && arm(), n: () => document.getElementById("note")?.focus(), "?": help };
  if (press) press.click();
  else if (others[event.key]) others[event.key]();
  else return;
  event.preventDefault();
});

function help() {
  const keys = document.getElementById("keys");
  if (keys) keys.open = !keys.open;
}

// While somebody looks, nobody else is given the same answer.
setInterval(() => {
  const held = part()?.dataset;
  if (!held?.hold || document.hidden) return;
  const csrf = document.querySelector('meta[name="csrf-token"]').content;
  fetch(held.hold, { method: "POST", body: new URLSearchParams({ csrf, field: held.field }) }).catch(() => {});
}, HOLD_S * 1000);
