// Results by keyboard: among cards by arrows, to other pages, to the search; and searches that go on by themselves.

const cards = () => [...document.querySelectorAll("[data-cards] .open")];
const keys = document.getElementById("keys");
let wasAsked = false; // for a page, by key: its first card takes the focus when it is there

function isWriting(target) {
  return target.matches?.("input, select, textarea, [contenteditable]") || document.querySelector("dialog[open]");
}

// The card whose middle is nearest in a row above or below.
function beside(all, here, step) {
  const from = here.closest("li").getBoundingClientRect();
  const middle = (box) => box.left + box.width / 2;
  let best = null;
  for (const one of all) {
    const box = one.closest("li").getBoundingClientRect();
    const rows = (box.top - from.top) * step;
    if (rows < from.height / 2) continue;
    const away = rows * 1000 + Math.abs(middle(box) - middle(from));
    if (best === null || away < best.away) best = { one, away };
  }
  return best?.one;
}

function move(key) {
  const all = cards();
  const here = document.activeElement?.closest?.("[data-cards] li")?.querySelector(".open");
  if (!all.length) return false;
  if (!here) return focus(all[0]);
  const place = all.indexOf(here);
  const to = {
    ArrowRight: () => all[place + 1],
    ArrowLeft: () => all[place - 1],
    ArrowDown: () => beside(all, here, 1),
    ArrowUp: () => beside(all, here, -1),
    Home: () => all[0],
    End: () => all.at(-1),
  }[key]();
  return to ? focus(to) : false;
}

function focus(card) {
  card.focus({ preventScroll: true });
  card.closest("li").scrollIntoView({ block: "nearest" });
  return true;
}

function turn(rel) {
  const link = document.querySelector(`.pager a[rel="${rel}"]`);
  if (!link) return false;
  wasAsked = true;
  link.click();
  return true;
}

function act(event) {
  switch (event.key) {
    case "ArrowRight": case "ArrowLeft": case "ArrowDown": case "ArrowUp": return move(event.key);
    case "Home": case "End": return document.activeElement?.closest?.("[data-cards]") ? move(event.key) : false;
    case "n": case "PageDown": return turn("next");
    case "p": case "PageUp": return turn("prev");
    case "/": document.getElementById("f-text")?.focus(); return true;
    case "?": keys?.showModal(); return true;
    default: return false;
  }
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isWriting(event.target)) return;
  if (act(event)) event.preventDefault();
});

// A picture that cannot be shown leaves words in its place.
document.addEventListener("error", (event) => {
  const picture = event.target;
  if (!picture.dataset?.gone) return;
  const words = document.createElement("span");
  words.className = "gone";
  words.textContent = picture.dataset.gone;
  picture.replaceWith(words);
}, true);

// A search that has found nothing so far goes on by itself.
function goOn() {
  const far = document.querySelector("#grid [data-far]")?.dataset.far;
  if (far) setTimeout(() => document.querySelector(`#grid [data-far] ~ .pager a[rel=${far}]`)?.click(), 50);
}

document.addEventListener("taken", (event) => {
  if (event.detail.id !== "grid") return;
  if (wasAsked) {
    scrollTo(0, 0);
    const first = cards()[0];
    if (first) focus(first);
  }
  wasAsked = false;
  goOn();
});

const opener = document.getElementById("keys-open");
if (opener && keys) {
  opener.hidden = false;
  opener.addEventListener("click", () => keys.showModal());
}
goOn();
