/* Signs decisions, and other statements about a run, with a key of this browser.

   1. WebCrypto makes the key, nothing can export it, and IndexedDB keeps it: one for each person who signs in here.
   2. The dialog that asks for confirmation is drawn from the values that are signed, and from nothing else of the page.
   3. The digest of a request is computed from those values. If the page claims another one, nothing is signed.
   4. What is sent is the statement that was signed, and no other field of the form.

   `holdfast/core/authority/statements.py`, `interventions.py` and `votes.py` define what is signed, tests compare. */
"use strict";
(() => {
  const DECISIONS = {
    approve: "Approve",
    deny: "Deny",
    respond: "Answer in its place",
    happened: "It happened",
    absent: "It did not happen",
    undo: "Undo it",
    abandon: "Leave it unknown",
  };
  const STEERING = {
    pause: "Pause the run",
    resume: "Resume the run",
    retry: "Let the blocked run continue",
  };
  const ONCE = {
    say: ["Send the agent a message", { message: "Message to the agent" }],
    refine: ["Refine the task", { kind: "How the task changes", text: "The refinement, which the LLM reads verbatim" }],
    extend: [
      "Extend the budget",
      { steps: "More steps", tokens: "More tokens", usd: "More US dollars", seconds: "More seconds", reason: "Reason" },
    ],
  };
  const GOOD_SECONDS = 86_400; // a signed message is valid for that long
  const HARMLESS = ["deny", "respond", "happened", "abandon"];
  const TEXTS = { reason: "Reason", say: "Message to the agent", result: "Answer" };
  const INVISIBLE =
    /[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;

  // ---- Keys ----

  const request = (made) =>
    new Promise((resolve, reject) => {
      made.onsuccess = () => resolve(made.result);
      made.onerror = () => reject(made.error);
    });

  async function inStore(mode, use) {
    const opening = indexedDB.open("holdfast", 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore("keys");
    const database = await request(opening);
    try {
      return await request(use(database.transaction("keys", mode).objectStore("keys")));
    } finally {
      database.close();
    }
  }

  const base64 = (bytes) =>
    btoa(String.fromCharCode(...new Uint8Array(bytes))).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
  const hex = (bytes) => [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, "0")).join("");

  /** The key of a person in this browser: its two halves, its public text and its fingerprint; null for none. */
  async function keyOf(person) {
    const pair = await inStore("readonly", (keys) => keys.get(person));
    if (!pair) return null;
    const raw = await crypto.subtle.exportKey("raw", pair.publicKey);
    const digits = hex(await crypto.subtle.digest("SHA-256", raw)).slice(0, 20);
    return { pair, text: `ed25519:${base64(raw)}`, fingerprint: digits.match(/.{4}/g).join(" ") };
  }

  async function makeKey(person) {
    const pair = await crypto.subtle.generateKey({ name: "Ed25519" }, false, ["sign", "verify"]);
    await inStore("readwrite", (keys) => keys.add(pair, person)); // fails if another tab has made one
    await navigator.storage?.persist?.(); // otherwise the browser may remove it when its disk is full
  }

  const removeKey = (person) => inStore("readwrite", (keys) => keys.delete(person));

  // ---- Statements ----

  /** Canonical JSON (RFC 8785) of a value that JSON has. */
  function canonical(value) {
    if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
    if (value === null || typeof value !== "object") return JSON.stringify(value);
    const members = Object.keys(value).sort();
    return `{${members.map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join(",")}}`;
  }

  const encoded = (text) => new TextEncoder().encode(text);
  const digest = async (text) => hex(await crypto.subtle.digest("SHA-256", encoded(text)));

  /** The digest of a request, from the values that the dialog shows. */
  async function digestOf(call) {
    const called = await digest(canonical(["call/1", call.tool, call.arguments]));
    const bound = [call.tool, called, call.spec_hash, call.effect_key, call.epoch];
    const context = call.context === null ? "" : await digest(`["context/1",${call.context}]`);
    if (!call.preview) return digest(canonical(context ? ["approval/2", ...bound, context] : ["approval/1", ...bound]));
    const { text, base, artifact, size, problem } = call.preview;
    const preview = await digest(canonical(["preview/1", text, base, artifact, size, problem]));
    return digest(canonical(["approval/3", ...bound, context, preview]));
  }

  /** What a person has written in a field, as it is signed. */
  const written = (field) => field?.value.toWellFormed().replace(/^\p{White_Space}+|\p{White_Space}+$/gu, "") ?? "";

  /** The decision that a form makes on a call. */
  function statementOf(form, call, decision) {
    const said = { decision, request: call.request, digest: call.digest };
    const field = (name) => form.elements.namedItem(name);
    for (const name of Object.keys(TEXTS)) {
      const text = written(field(name));
      if (text) said[name] = text;
    }
    if (field("remember")?.checked) said.remember = true;
    if (field("edited")) said.arguments = JSON.parse(field("edited").value, exact);
    return said;
  }

  function exact(name, value) {
    if (Number.isInteger(value) && !Number.isSafeInteger(value))
      throw new Error(`${value} has too many digits to be signed here: write it as a text, "${value}".`);
    return value;
  }

  const signedText = (call, said) =>
    canonical({ holdfast: "decision/1", thread: call.thread, ...(call.by === "unknown" ? {} : { by: call.by }), ...said });

  async function check(call, decision) {
    if ((await digestOf(call)) !== call.digest)
      throw new Error(
        `Request ${call.request} claims another digest than the call shown has. Nothing was signed. ` +
          "Find out which worker serves this thread before you decide anything.",
      );
    if (call.preview?.size && !HARMLESS.includes(decision))
      throw new Error("Its preview is cut. Read all of it first, and decide in a terminal.");
  }

  // ---- The dialog ----

  const visible = (text) =>
    text.replace(INVISIBLE, (each) => `\\u{${each.codePointAt(0).toString(16).padStart(4, "0")}}`);

  /** JSON with line breaks, without reading its values: numbers and texts stay as they are written. */
  function laidOut(json) {
    let depth = 0;
    const parts = json.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^"{}[\],:]+/gs) ?? [];
    const line = () => `\n${"  ".repeat(depth)}`;
    return parts
      .map((part, at) => {
        const empty = /^[}\]]$/.test(parts[at + 1] ?? "");
        if (part === "{" || part === "[") return ++depth, part + (empty ? "" : line());
        if (part === "}" || part === "]") return --depth, (/^[{[]$/.test(parts[at - 1]) ? "" : line()) + part;
        return part === "," ? part + line() : part === ":" ? ": " : part;
      })
      .join("");
  }

  function element(tag, text = "", name = "") {
    const made = document.createElement(tag);
    made.textContent = text;
    made.className = name;
    return made;
  }

  /** Everything that one signature covers. */
  function drawn(call, said) {
    const section = element("section");
    const row = (name, text) => section.append(element("h3", name), element("pre", visible(text)));
    section.append(element("p", visible(`Request ${call.request} of ${call.thread}: ${call.tool}`), "consequence"));
    row("Arguments", laidOut(call.arguments));
    if (said.arguments) row("Your arguments, which run instead", laidOut(canonical(said.arguments)));
    if (call.context !== null) row("With the context of the run", laidOut(call.context));
    if (call.preview) row(call.kind === "question" ? "The server's question" : "Preview", call.preview.problem || call.preview.text);
    for (const [name, label] of Object.entries(TEXTS)) if (said[name]) row(label, said[name]);
    if (said.remember) section.append(element("p", "The same call is allowed from now on, in this thread."));
    section.append(element("p", `Digest ${call.digest}`, "dim"));
    return section;
  }

  /** Ask the person; true if they confirm. The title is ours, `by` signs, and the sections show all that is signed. */
  function confirmed(words, by, key, sections) {
    const dialog = element("dialog", "", "signing");
    const title = element("h2", `Sign: ${words}`);
    title.id = "signing-title";
    dialog.setAttribute("aria-labelledby", title.id);
    const sign = element("button", "Sign and send", "primary"), back = element("button", "Back");
    const actions = element("p", "", "actions");
    actions.append(sign, " ", back);
    const who = element("p", visible(`You sign as ${by}, with the key ${key.fingerprint}.`), "dim");
    dialog.append(title, who, ...sections, actions);
    document.body.append(dialog);
    return new Promise((resolve) => {
      sign.onclick = () => dialog.close("sign");
      back.onclick = () => dialog.close("");
      dialog.onclose = () => (dialog.remove(), resolve(dialog.returnValue === "sign"));
      dialog.showModal();
      back.focus();
    });
  }

  // ---- Forms ----

  const callsIn = (elements) => [...elements].map((each) => JSON.parse(each.dataset.call || "null"));
  const callOnPage = () => callsIn(document.querySelectorAll("[data-call]"))[0] ?? null;
  const isListed = (key, call) => call !== null && call.keys.includes(key.text);

  function send(form, fields) {
    for (const [name, value] of Object.entries(fields)) {
      const input = element("input");
      Object.assign(input, { type: "hidden", name, value });
      form.append(input);
    }
    form.submit();
  }

  async function sign(form, decision) {
    const call = callOnPage();
    const key = call && (await keyOf(call.by));
    if (!key || !isListed(key, call)) return send(form, { decision });
    await check(call, decision);
    const statement = statementOf(form, call, decision);
    if (!(await confirmed(DECISIONS[decision], call.by, key, [drawn(call, statement)]))) return;
    const signature = await signatureOf(key, signedText(call, statement));
    send(form, { decision, signed: JSON.stringify({ thread: call.thread, statement, signature }) });
  }

  /** The same for several calls: one dialog that shows all of them, and a signature each. */
  async function signAll(form, decision) {
    const onPage = callsIn(document.querySelectorAll("[data-call]"));
    const person = onPage.find((call) => call)?.by;
    const key = person === undefined ? null : await keyOf(person);
    const calls = key ? onPage.filter((call) => isListed(key, call)) : [];
    if (!calls.length) return send(form, { decision });
    for (const call of calls) await check(call, decision);
    const statements = calls.map((call) => statementOf(form, call, decision));
    const title = `${DECISIONS[decision]} ${calls.length} ${calls.length === 1 ? "call" : "calls"}`;
    const sections = calls.flatMap((call, at) => [
      element("p", `${at + 1} of ${calls.length}`, "dim"),
      drawn(call, statements[at]),
    ]);
    if (!(await confirmed(title, person, key, sections))) return;
    const signatures = [];
    for (const [at, call] of calls.entries()) {
      const signature = await signatureOf(key, signedText(call, statements[at]));
      signatures.push({ thread: call.thread, request: call.request, digest: call.digest, signature });
    }
    const { request, digest, ...said } = statements[0];
    send(form, { decision, signed: JSON.stringify({ said, signatures }) });
  }

  /** The same for a statement that steers a run: it is bound to the state that the page has shown. */
  async function steer(form) {
    const { act, thread, by, run, seen, keys } = JSON.parse(form.dataset.steers);
    const key = await keyOf(by);
    if (!key || !keys.includes(key.text)) return form.submit();
    const section = element("section");
    section.append(element("p", visible(`Thread ${thread}`), "consequence"));
    section.append(element("p", `It counts once, and only while the run is as this page shows it (run ${visible(run)}, change ${seen}).`, "dim"));
    if (!(await confirmed(STEERING[act], by, key, [section]))) return;
    const said = { run, ...(seen ? { seen } : {}), ...(by === "unknown" ? {} : { by }) };
    const signature = await signatureOf(key, canonical({ holdfast: `${act}/1`, thread, ...said }));
    send(form, { signed: JSON.stringify({ thread, run, seen, signature }) });
  }

  /** The same for a message, a refinement or an extension: it counts once, and until a time. */
  async function signOnce(form) {
    const { act, format, thread, by, keys } = JSON.parse(form.dataset.signsOnce);
    const key = await keyOf(by);
    if (!key || !keys.includes(key.text)) return form.submit();
    const [words, labels] = ONCE[act];
    const field = (name) => form.elements.namedItem(name);
    const statement = {};
    for (const [name, label] of Object.entries(labels)) {
      const text = written(field(name));
      if (text) statement[name] = amount(name, label, text);
    }
    const id = field("id")?.value || crypto.randomUUID();
    const until = `${new Date(Date.now() + GOOD_SECONDS * 1000).toISOString().slice(0, 19)}Z`;
    const section = element("section");
    section.append(element("p", visible(`Thread ${thread}`), "consequence"));
    for (const [name, label] of Object.entries(labels))
      if (name in statement) section.append(element("h3", label), element("pre", visible(String(statement[name]))));
    section.append(element("p", `It counts once (${visible(id)}), and until ${until}.`, "dim"));
    if (!(await confirmed(words, by, key, [section]))) return;
    const signature = await signatureOf(key, canonical({ holdfast: format, thread, by, id, until, ...statement }));
    send(form, { signed: JSON.stringify({ thread, statement, id, until, signature }) });
  }

  /** An amount as it is signed: a whole number, or dollars without zeros that say nothing; any other text as it is. */
  function amount(name, label, text) {
    if (name === "usd") {
      if (!/^(0|[1-9]\d{0,6})(\.\d{1,9})?$/.test(text)) throw new Error(`${label}: write an amount such as 2.50.`);
      return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
    }
    if (!["steps", "tokens", "seconds"].includes(name)) return text;
    if (!/^[1-9]\d{0,14}$/.test(text)) throw new Error(`${label}: write a whole number.`);
    return Number(text);
  }

  const signatureOf = async (key, text) => base64(await crypto.subtle.sign("Ed25519", key.pair.privateKey, encoded(text)));

  function report(form, error) {
    form.querySelector(".unsigned")?.remove();
    const shown = element("p", `Not signed: ${error.message || error.name}`, "notice bad unsigned");
    shown.setAttribute("role", "alert");
    form.prepend(shown);
  }

  /** Enable the buttons that only wait for a signature, if the policy lists the key of this browser. */
  async function enable() {
    const waiting = [...document.querySelectorAll("button[data-needs-key]")];
    const marked = document.querySelectorAll("[data-must-sign]"); // of several calls, those that need a signature
    const calls = marked.length ? callsIn(marked) : [callOnPage()];
    const key = calls[0] && waiting.length ? await keyOf(calls[0].by) : null;
    if (!key) return;
    for (const button of waiting) mark(button, key, calls.every((call) => isListed(key, call)));
  }

  /** The same for the buttons that steer a run, or send it something. */
  async function enableSteering() {
    for (const button of document.querySelectorAll(":is([data-steers], [data-signs-once]) button[data-needs-key]")) {
      const { by, keys } = JSON.parse(button.form.dataset.steers ?? button.form.dataset.signsOnce);
      const key = await keyOf(by);
      if (key) mark(button, key, keys.includes(key.text));
    }
  }

  function mark(button, key, enrolled) {
    button.disabled = !enrolled;
    const why = document.getElementById(button.getAttribute("aria-describedby"));
    why.textContent = enrolled
      ? `Signed with the key of this browser, ${key.fingerprint}.`
      : `The policy of this run does not list the key of this browser, ${key.fingerprint}. A run keeps the policy that it began with.`;
  }

  // ---- The page of the key ----

  async function showKey(section) {
    const { person, known } = section.dataset;
    const key = await keyOf(person);
    section.querySelector("#no-key").hidden = key !== null;
    section.querySelector("#own-key").hidden = key === null;
    if (!key) return;
    section.querySelector("#fingerprint").textContent = key.fingerprint;
    section.querySelector("#public-key").textContent = key.text;
    section.querySelector("#enrol").textContent = `holdfast approvers add ${person} ${key.text}`;
    section.querySelector("#listed").textContent = known.split(" ").includes(key.text)
      ? "listed by the policy of this gateway"
      : "not listed by the policy of this gateway";
  }

  function offerKey(section) {
    const shown = () => showKey(section).catch((error) => report(section, error));
    const then = (use) => () => use(section.dataset.person).catch((error) => report(section, error)).then(shown);
    section.querySelector("#make-key").onclick = then(makeKey);
    section.querySelector("#remove-key").onclick = then(removeKey);
    shown();
  }

  document.addEventListener("submit", (event) => {
    const decision = event.submitter?.value;
    const form = event.target;
    const signs = ["signs", "signsAll"].find((name) => name in form.dataset && decision in DECISIONS);
    const other = ["steers", "signsOnce"].find((name) => name in form.dataset);
    if (!signs && !other) return;
    event.preventDefault();
    const signing = !signs ? (other === "steers" ? steer : signOnce)(form) : signs === "signs" ? sign(form, decision) : signAll(form, decision);
    signing.catch((error) => report(form, error));
  });
  const page = document.getElementById("key");
  if (page) offerKey(page);
  document.addEventListener("htmx:after:swap", () => enableSteering().catch(() => {}));
  enable().then(enableSteering).catch(() => {}); // the buttons stay disabled, with the reason that the page gives
})();
