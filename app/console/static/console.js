// What all pages share: times in the reader's zone, parts that stay current, forms that swap parts, questions before
// what cannot be undone. Every page works without it, except for what moves.

const MOST_WAIT_S = 60;

export function told(text) {
  document.getElementById("told").textContent = text;
}

// Cells know their column: on a phone, where a row has no room to stand side by side, it is said before each.
function nameCells(root) {
  for (const table of root.querySelectorAll("table:not(.wide, .told-by-row)")) {
    const names = [...table.querySelectorAll("thead th")].flatMap((head) => {
      return Array(head.colSpan).fill(head.querySelector(".unseen") ? "" : head.textContent.trim());
    });
    for (const row of table.tBodies[0]?.rows ?? []) for (const cell of row.cells) cell.dataset.column = names[cell.cellIndex] ?? "";
    table.classList.add("told-by-row");
  }
}

// What the reader's side makes of a page: times as the reader's zone and language have them, cells with their columns.
export function localise(root = document) {
  nameCells(root);
  const form = new Intl.DateTimeFormat(document.documentElement.lang, { dateStyle: "medium", timeStyle: "short" });
  for (const time of root.querySelectorAll("time[datetime]:not([data-local])")) {
    time.title = time.textContent;
    time.textContent = form.format(new Date(time.dateTime));
    time.dataset.local = "";
  }
  // A choice holds text only, which ends with its time.
  for (const option of root.querySelectorAll("option[data-utc]")) {
    option.textContent = option.textContent.slice(0, -option.dataset.utc.length) + form.format(new Date(option.dataset.moment));
    delete option.dataset.utc;
  }
}

async function load(url, signal) {
  const answer = await fetch(url, { headers: { Accept: "text/html" }, signal });
  if (answer.redirected && new URL(answer.url).pathname === "/sign-in") location.assign(answer.url);
  if (!answer.ok) throw new Error(String(answer.status));
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  localise(page);
  return page;
}

// Take over parts from a newer page. What is the same stays, with its focus and scroll.
function take(page, ids) {
  for (const id of ids) {
    const fresh = page.getElementById(id);
    const old = document.getElementById(id);
    if (!fresh || !old || old.outerHTML === fresh.outerHTML) continue;
    const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
    old.replaceWith(document.adoptNode(fresh));
    if (focused) document.getElementById(focused)?.focus();
    document.dispatchEvent(new CustomEvent("taken", { detail: { id } }));
  }
}

// Parts marked data-live are asked for again, as often as the first of them says in seconds; 0 is never.
async function keepCurrent() {
  let failures = 0;
  for (;;) {
    const parts = [...document.querySelectorAll("[data-live][id]")];
    const every = Math.max(0, ...parts.map((part) => Number(part.dataset.live) || 0));
    if (!every) return;
    await new Promise((go) => setTimeout(go, Math.min(MOST_WAIT_S, every * 2 ** failures) * 1000));
    if (document.hidden || document.querySelector("dialog[open]")) continue;
    try {
      take(await load(location.href), parts.map((part) => part.id));
      failures = 0;
    } catch {
      failures = Math.min(failures + 1, 6);
    }
  }
}

// Forms (method get) and links marked data-swap="id id" replace these parts, and the address.
let swapping = null;
export async function swap(url, ids, { push = true } = {}) {
  swapping?.abort();
  swapping = new AbortController();
  for (const id of ids) document.getElementById(id)?.setAttribute("aria-busy", "true");
  try {
    take(await load(url, swapping.signal), ids);
    if (push) history.pushState({ swap: ids }, "", url);
    shown = location.pathname + location.search;
  } catch (error) {
    if (error.name !== "AbortError") location.assign(url);
  } finally {
    for (const id of ids) document.getElementById(id)?.removeAttribute("aria-busy");
  }
}

function formUrl(form) {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (value !== "") query.append(name, value);
  return `${form.getAttribute("action") || location.pathname}?${query}`;
}

// Ask before a form marked data-confirm is sent; `doing` is what its button says.
function sure(text, doing) {
  return new Promise((answer) => {
    const dialog = document.createElement("dialog");
    const words = document.createElement("p");
    words.textContent = text;
    const form = document.createElement("form");
    form.method = "dialog";
    form.className = "line";
    const yes = Object.assign(document.createElement("button"), { value: "yes", className: "danger", textContent: doing });
    const no = Object.assign(document.createElement("button"), { value: "", textContent: document.body.dataset.back });
    form.append(no, yes);
    dialog.append(words, form);
    dialog.addEventListener("close", () => { answer(dialog.returnValue === "yes"); dialog.remove(); });
    document.body.append(dialog);
    dialog.showModal();
  });
}

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (form.dataset.swap && form.method === "get") {
    event.preventDefault();
    swap(formUrl(form), form.dataset.swap.split(" "));
  } else if (form.dataset.confirm && !form.dataset.sure) {
    event.preventDefault();
    const submitter = event.submitter;
    if (await sure(form.dataset.confirm, submitter?.textContent.trim() || "OK")) {
      form.dataset.sure = "yes";
      form.requestSubmit(submitter);
    }
  }
});

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-swap]");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  swap(link.href, link.dataset.swap.split(" "));
});

let typing = 0;
document.addEventListener("input", (event) => {
  const form = event.target.form;
  if (!form?.dataset.swap) return;
  clearTimeout(typing);
  typing = setTimeout(() => form.requestSubmit(), event.target.tagName === "SELECT" ? 0 : 250);
});

// A step back; one within the page, such as to its content, is none.
let shown = location.pathname + location.search;
addEventListener("popstate", (event) => {
  const wanted = location.pathname + location.search;
  if (wanted === shown) return;
  shown = wanted;
  if (event.state?.swap) swap(location.href, event.state.swap, { push: false });
  else location.reload();
});

localise();
document.querySelector(".top nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
keepCurrent();
