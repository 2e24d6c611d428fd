/* Shows the reply that the LLM is writing, until its event is recorded and replaces it. Without this script, replies
   appear once they are recorded.

   1. Words are set as text, never as HTML, and belong to no form: no button refers to them.
   2. A draft is one attempt at one reply. Another attempt, or an event that ends the call, removes it.
   3. Only a window in view is connected, because a browser opens few connections to a host. It continues after the last
      id that it has.
   4. A screen reader hears that a reply begins, and the recorded one; not each word. */
"use strict";
(() => {
  const draft = document.getElementById("draft");
  if (!draft) return;
  const RETRY_MS = 15_000;
  const heard = document.getElementById("heard");
  const lost = draft.querySelector(".lost");
  const parts = { text: draft.querySelector(".words"), reasoning: draft.querySelector("details") };
  let source = null;
  let timer = 0;
  let last = "";
  let position = -1; // of the reply to come that is shown
  let replied = false;

  const live = () => document.getElementById("live");
  const after = () => Number(live()?.dataset.after ?? Infinity); // the last event in the timeline
  const refresh = () => live()?.dispatchEvent(new Event("news"));
  const placeOf = (part) => part.querySelector("pre");

  function clear() {
    draft.hidden = true;
    position = -1;
    replied = false;
    for (const part of Object.values(parts)) {
      part.hidden = true;
      part.querySelector(".cut").hidden = true;
      placeOf(part).replaceChildren();
    }
  }

  function append(place, text, writtenOut) {
    const end = place.lastChild;
    if (!writtenOut && end?.localName === "bdi") return end.firstChild.appendData(text);
    const made = document.createElement(writtenOut ? "span" : "bdi");
    if (writtenOut) made.className = "out";
    made.textContent = text;
    place.append(made);
  }

  function show({ kind, pieces, cut }) {
    const part = parts[kind];
    const note = part?.querySelector(".cut");
    if (!note?.hidden) return; // nothing more of it is shown
    const place = placeOf(part);
    const atEnd = place.scrollHeight - place.scrollTop - place.clientHeight < 40;
    for (const [text, writtenOut] of pieces) append(place, text, writtenOut);
    note.textContent = cut ? `… cut: the first ${cut} characters are shown` : "";
    note.hidden = !cut;
    part.hidden = false;
    if (draft.hidden) heard.textContent = "The LLM is writing a reply, which is not recorded yet.";
    draft.hidden = false;
    if (atEnd) place.scrollTop = place.scrollHeight;
  }

  /** Remove the draft if the timeline has the event that ends it. */
  function settle() {
    if (position < 0 || after() < position) return;
    const entry = [...draft.parentElement.children].find((each) => each.dataset.position === String(position));
    const words = entry?.querySelector("pre")?.textContent.slice(0, 500);
    heard.textContent = words && replied ? `The LLM has replied: ${words}` : "";
    clear();
  }

  const HEARD = {
    draft(id, content) {
      const [at, , chunk] = id.split(".").map(Number);
      if (chunk === 1) clear();
      if (at <= after()) return;
      position = at;
      show(content);
    },
    superseded: clear,
    ended(id, content) {
      if (position < 0) return;
      if (content.replied) [position, replied] = [content.position, true];
      else clear();
      settle();
      refresh();
    },
    end() {
      stop();
      refresh();
    },
  };

  function start() {
    const from = last && Number(last.split(".")[0]) > after() ? last : after();
    source = new EventSource(`${draft.dataset.stream}?after=${from}`);
    for (const [name, hear] of Object.entries(HEARD))
      source.addEventListener(name, (event) => {
        last = event.lastEventId || last;
        hear(last, JSON.parse(event.data));
      });
    source.onopen = () => (lost.hidden = true);
    source.onerror = () => {
      lost.hidden = false;
      if (source?.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
      stop();
      timer = setTimeout(follow, RETRY_MS * (1 + Math.random()));
    };
  }

  function stop() {
    source?.close();
    source = null;
    clearTimeout(timer);
  }

  function follow() {
    if (document.hidden || !live()) stop();
    else if (!source) start();
  }

  new MutationObserver(settle).observe(draft.parentElement, { childList: true });
  document.addEventListener("visibilitychange", follow);
  follow();
})();
