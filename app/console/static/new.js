// Uploads with progress, columns put into questions, and a preview whose answers come as they are ready.
import { localise, told } from "./console.js";

const LOOK_MS = 1000;
const MOST_FAILURES = 5;

function size(bytes) {
  const units = ["B", "kB", "MB", "GB"];
  let step = 0;
  for (; bytes >= 1000 && step < 3; step++) bytes /= 1000;
  return `${bytes.toFixed(step && bytes < 100 ? 1 : 0)} ${units[step]}`;
}

// Uploading: in the background, with how far it is, and a way to stop.
function watchUpload(form) {
  const file = form.querySelector("#file"), problem = form.querySelector("#problem"), going = form.querySelector("#going");
  const what = form.querySelector("#going-what"), bar = form.querySelector("#going-bar"), button = form.querySelector("button.main");
  let sending = null;

  function refuse(text) {
    problem.textContent = text;
    problem.hidden = !text;
    going.hidden = true;
    button.hidden = file.hidden = false;
  }

  function send() {
    const given = file.files[0];
    if (!given) return;
    if (!form.dataset.formats.split(" ").includes(given.name.toLowerCase().split(".").pop())) return refuse(form.dataset.wrong);
    refuse("");
    going.hidden = false;
    button.hidden = file.hidden = true;
    sending = new XMLHttpRequest();
    sending.open("POST", form.action);
    sending.responseType = "document";
    sending.setRequestHeader("x-csrf-token", document.querySelector('meta[name="csrf-token"]').content);
    sending.setRequestHeader("Accept", "text/html");
    sending.upload.addEventListener("progress", (event) => {
      bar.value = (100 * event.loaded) / event.total;
      what.textContent = event.loaded < event.total
        ? `${given.name}: ${size(event.loaded)} / ${size(event.total)} ${form.dataset.sent}` : form.dataset.reading;
    });
    sending.addEventListener("load", () => {
      if (sending.status < 400) return location.assign(sending.responseURL);
      const said = sending.response?.querySelector('#problem, [role="alert"] p');
      refuse(said?.textContent.trim() || form.dataset.failed);
    });
    sending.addEventListener("error", () => refuse(form.dataset.failed));
    sending.addEventListener("abort", () => refuse(""));
    what.textContent = given.name;
    told(given.name);
    sending.send(new FormData(form));
  }

  form.addEventListener("submit", (event) => { event.preventDefault(); send(); });
  file.addEventListener("change", send);
  form.querySelector("#stop").addEventListener("click", () => sending?.abort());
  // A file that is dropped beside the form would replace the page.
  for (const name of ["dragover", "dragleave", "drop"]) {
    addEventListener(name, (event) => {
      event.preventDefault();
      form.classList.toggle("over", name === "dragover");
      if (name !== "drop" || !event.dataTransfer.files.length || !going.hidden) return;
      file.files = event.dataTransfer.files;
      send();
    });
  }
}

// The form that says what to ask: its buttons replace parts, but for the one that runs all.
function watchForm(form) {
  function show() {
    for (const line of form.querySelectorAll(".columns")) line.hidden = false;
  }

  async function ask(fields, ids) {
    const answer = await fetch(form.action, { method: "POST", body: new URLSearchParams(fields), headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!page.getElementById(ids[0])) throw new Error(String(answer.status));
    localise(page);
    for (const id of ids) {
      const old = document.getElementById(id), fresh = page.getElementById(id);
      if (old.outerHTML !== fresh.outerHTML) old.replaceWith(document.adoptNode(fresh));
    }
    show();
  }

  let failures = 0;
  async function follow() {
    if (document.getElementById("preview").dataset.waits !== "1") return;
    await new Promise((go) => setTimeout(go, LOOK_MS * 2 ** failures));
    const fields = new FormData(form);
    fields.set("do", "look");
    try {
      if (!document.hidden) await ask(fields, ["preview"]);
      failures = 0;
    } catch {
      failures += 1;
    }
    if (failures < MOST_FAILURES) follow();
  }

  form.addEventListener("submit", async (event) => {
    const action = event.submitter?.value;
    if (!action || action === "run" || event.submitter.closest("details")) return;
    event.preventDefault();
    const fields = new FormData(form, event.submitter);
    const adds = action === "add" || action.startsWith("remove:");
    event.submitter.disabled = true;
    document.getElementById("preview").setAttribute("aria-busy", "true");
    try {
      await ask(fields, adds ? ["spec"] : ["spec", "preview"]);
      if (adds) [...form.querySelectorAll('textarea[name$=".ask"]')].at(-1)?.focus();
      const problem = document.getElementById("problem-top");
      const field = form.querySelector('[aria-invalid="true"]');
      (field ?? problem)?.focus();
      (field ?? problem)?.scrollIntoView({ block: "center" });
      if (action === "preview" && !problem) {
        document.getElementById("preview").scrollIntoView({ block: "nearest" });
        follow();
      }
    } catch {
      location.assign(form.action);
    } finally {
      event.submitter.disabled = false;
      document.getElementById("preview").removeAttribute("aria-busy");
    }
  });

  form.addEventListener("click", (event) => {
    const chip = event.target.closest?.("[data-insert]");
    if (!chip) return;
    const area = document.getElementById(chip.dataset.into);
    area.setRangeText(`{${chip.dataset.insert}}`, area.selectionStart, area.selectionEnd, "end");
    area.focus();
  });
  show();
  follow();
}

const upload = document.getElementById("upload"), spec = document.getElementById("ask");
if (upload) watchUpload(upload);
if (spec) watchForm(spec);
