// What is shown once can be copied, and loading the page again does not make another one.
import { told } from "./console.js";

const box = document.querySelector("[data-here]");
if (box) {
  history.replaceState(null, "", box.dataset.here);
  const button = box.querySelector("[data-copy]");
  const field = document.getElementById(button.dataset.copy);
  button.hidden = false;
  button.addEventListener("click", async () => {
    field.select();
    try {
      await navigator.clipboard.writeText(field.value);
    } catch {
      document.execCommand("copy");
    }
    button.textContent = button.dataset.copied;
    told(button.dataset.copied);
  });
  document.getElementById("once-title").focus();
}
