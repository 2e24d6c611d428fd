/* Keeps "5m 2s ago" and "in 3h 20m" true while a page stays open. Without it, they are of when the page was made. */
"use strict";
(() => {
  const EVERY_MS = 5_000;
  const UNITS = [["d", 86_400], ["h", 3_600], ["m", 60], ["s", 1]];
  const behind = Date.parse(document.currentScript.dataset.now) - Date.now(); // the server's clock made the words

  // As `rounded_span` in holdfast/core/base/durations.py.
  function span(seconds) {
    let left = Math.floor(seconds);
    const parts = [];
    for (const [unit, size] of UNITS) {
      const count = Math.floor(left / size);
      left %= size;
      if (count || parts.length) parts.push(count ? `${count}${unit}` : "");
      if (parts.length === 2) break;
    }
    return parts.filter(Boolean).join(" ") || "0s";
  }

  setInterval(() => {
    for (const time of document.querySelectorAll("time[datetime]")) {
      const seconds = (Date.parse(time.dateTime) - Date.now() - behind) / 1_000;
      if (!Number.isNaN(seconds)) time.textContent = seconds >= 0 ? `in ${span(seconds)}` : `${span(-seconds)} ago`;
    }
  }, EVERY_MS);
})();
