/* Selects all requests of a list at once, and says how many are selected. Without it, each is selected by itself. */
"use strict";
(() => {
  const form = document.getElementById("several");
  if (!form) return;
  const all = document.getElementById("all");
  const every = all.querySelector("input");
  const count = document.getElementById("count");
  const boxes = [...form.querySelectorAll("input[name=item]:enabled")];

  function update() {
    const selected = boxes.filter((box) => box.checked).length;
    every.checked = selected > 0 && selected === boxes.length;
    every.indeterminate = selected > 0 && selected < boxes.length;
    count.textContent = `${selected} selected`;
    for (const button of form.querySelectorAll("button")) button.disabled = selected === 0;
  }

  every.addEventListener("change", () => {
    for (const box of boxes) box.checked = every.checked;
    update();
  });
  form.addEventListener("change", (event) => event.target !== every && update());
  window.addEventListener("pageshow", update); // a browser restores the boxes when a person comes back
  all.hidden = boxes.length < 2;
  update();
})();
