// `@ag-ui/client` as a chat interface uses it. Arguments: the gateway's URL, a token, a thread, an approver's key (hex).
import assert from "node:assert/strict";
import { createPrivateKey, sign } from "node:crypto";

import { HttpAgent } from "@ag-ui/client";

import { cutting } from "./cutting.mjs";

const [url, token, thread, seed] = process.argv.slice(2);
const headers = { Authorization: `Bearer ${token}` };
const address = `${url}/threads/${thread}/ag-ui`;

// The client reports what it cannot read, and drops it: nothing of ours may be.
const complaints = [];
console.warn = console.error = (...said) => complaints.push(said.map(String).join(" "));

const key = createPrivateKey({
  key: Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), Buffer.from(seed, "hex")]),
  format: "der",
  type: "pkcs8",
});

/** Return the signature of an approver's decision: canonical JSON, and its fields are sorted here. */
function signed(request, by, decision = "approve") {
  const statement = { by, decision, digest: request.digest, holdfast: "decision/1", request: request.request, thread };
  return sign(null, Buffer.from(JSON.stringify(statement)), key).toString("base64url");
}

const unrecognized = [];
const events = [];
const subscriber = {
  onEvent: ({ event }) => void events.push(event),
  onUnrecognizedEvent: ({ event }) => void unrecognized.push(event),
};
const said = () => agent.messages.filter((each) => each.role === "assistant" && each.content).map((each) => each.content);

const agent = new HttpAgent({ url: `${address}?agent=clerk`, threadId: thread, headers });
agent.addMessage({ id: "m1", role: "user", content: "Pay 7 cents." });
const first = await agent.runAgent({ runId: "run-1" }, subscriber);

// The run waits: the request is an interrupt, and the call is in the messages.
assert.equal(agent.pendingInterrupts.length, 1);
const [interrupt] = agent.pendingInterrupts;
const request = interrupt.metadata.holdfast;
assert.equal(interrupt.id, `${request.request}.${request.digest}`);
assert.equal(request.tool, "pay");
assert.deepEqual(said(), ["I will pay."]);
const [call] = first.newMessages.flatMap((each) => each.toolCalls ?? []);
assert.equal(call.function.name, "pay");
assert.deepEqual(JSON.parse(call.function.arguments), { cents: 7 });
assert.equal(call.id, interrupt.toolCallId);
await assert.rejects(agent.runAgent({ runId: "run-2" }), /pending interrupt/);

// A signature of another statement is rejected; that of the request as shown counts.
const answer = (signature) => ({
  resume: [{ interruptId: interrupt.id, status: "resolved", payload: { decision: "approve" }, metadata: { signature } }],
});
await assert.rejects(agent.runAgent({ runId: "run-3", ...answer(signed({ ...request, request: "99" }, "alice")) }), /403/);
complaints.length = 0; // the client prints the failed request
await agent.runAgent({ runId: "run-4", ...answer(signed(request, "alice")) }, subscriber);
assert.deepEqual(agent.pendingInterrupts, []);
const result = agent.messages.find((each) => each.role === "tool");
assert.deepEqual([result.toolCallId, result.content], [call.id, "paid 7"]);
assert.deepEqual(said(), ["I will pay.", "Paid 7 cents."]);

// The next message continues the thread, over connections that are cut after each event.
const seen = [];
agent.fetch = cutting(`${address}?run=run-5`, headers, { seen });
agent.addMessage({ id: "m2", role: "user", content: "Thanks!" });
const last = await agent.runAgent({ runId: "run-5" }, subscriber);
assert.equal(last.result, "You are welcome.");
assert.deepEqual(said(), ["I will pay.", "Paid 7 cents.", "You are welcome."]);
assert.ok(seen.length >= 5);
assert.equal(new Set(seen).size, seen.length);

// Another screen reads the whole thread, into the same messages.
const reader = new HttpAgent({ url: address, threadId: thread, headers });
reader.fetch = (ignored, init) => fetch(address, { headers, signal: init.signal });
await reader.runAgent({ runId: "run-6" });
const shape = (each) => [each.role, each.content, each.toolCalls?.map((made) => made.id), each.toolCallId];
assert.deepEqual(
  reader.messages.map(shape),
  agent.messages.filter((each) => each.role !== "user").map(shape),
);

assert.deepEqual([complaints, unrecognized], [[], []]);
assert.ok(events.every((each) => typeof each.type === "string"));
console.log("ok");
