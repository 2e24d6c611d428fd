// Vercel's `ai` as `useChat` uses it. Arguments: the gateway's URL, a token, and a thread.
import assert from "node:assert/strict";

import {
  AbstractChat,
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  readUIMessageStream,
  safeValidateUIMessages,
} from "ai";

import { cutting } from "./cutting.mjs";

const [url, token, thread] = process.argv.slice(2);
const headers = { Authorization: `Bearer ${token}` };
const api = `${url}/threads/${thread}/ui-messages`;

/** A chat as `useChat` makes it, with its state in memory. */
class Chat extends AbstractChat {
  constructor(options, messages = []) {
    const state = {
      messages,
      status: "ready",
      error: undefined,
      pushMessage: (message) => void (state.messages = [...state.messages, message]),
      popMessage: () => void (state.messages = state.messages.slice(0, -1)),
      replaceMessage: (index, message) => void (state.messages = state.messages.with(index, message)),
      snapshot: structuredClone,
    };
    super({ ...options, state });
  }
}

const transport = (more = {}) =>
  new DefaultChatTransport({
    api: `${api}?agent=clerk`,
    headers,
    prepareSendMessagesRequest: ({ id, messages, trigger }) => ({ body: { id, trigger, messages: messages.slice(-1) } }),
    prepareReconnectToStreamRequest: () => ({ api }),
    ...more,
  });

const failures = [];
const chatOf = (options, messages) =>
  new Chat(
    {
      id: thread,
      transport: transport(),
      sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
      onError: (error) => failures.push(error),
      ...options,
    },
    messages,
  );
const partsOf = (message, type) => message.parts.filter((each) => each.type === type);
const textOf = (message) => partsOf(message, "text").map((each) => each.text).join("|");

async function until(condition) {
  while (!condition()) {
    if (failures.length) throw failures[0];
    await new Promise((done) => setTimeout(done, 20));
  }
}

// A whole turn: text, a call, and the request of an approval.
const finished = [];
const chat = chatOf({ onFinish: (each) => finished.push(each) });
await chat.sendMessage({ text: "Pay 7 cents." });
assert.equal(chat.status, "ready");
let message = chat.lastMessage;
assert.equal(message.role, "assistant");
assert.equal(textOf(message), "I will pay.");
let [call] = partsOf(message, "dynamic-tool");
assert.deepEqual([call.toolName, call.state, call.input], ["pay", "approval-requested", { cents: 7 }]);
const [shown] = partsOf(message, "data-request");
assert.equal(call.approval.id, `${shown.data.request}.${shown.data.digest}`);
assert.equal(finished.at(-1).finishReason, "tool-calls");

// The approval is sent by itself, and continues the same message.
await chat.addToolApprovalResponse({ id: call.approval.id, approved: true, reason: "agreed" });
await until(() => finished.length === 2 && chat.status === "ready");
message = chat.lastMessage;
assert.equal(chat.messages.length, 2);
assert.equal(textOf(message), "I will pay.|Paid 7 cents.");
[call] = partsOf(message, "dynamic-tool");
assert.deepEqual([call.state, call.output, call.approval.approved], ["output-available", "paid 7", true]);
assert.equal(finished.at(-1).finishReason, "stop");

// A denial, in the next turn.
await chat.sendMessage({ text: "Pay 8 cents." });
[call] = partsOf(chat.lastMessage, "dynamic-tool");
await chat.addToolApprovalResponse({ id: call.approval.id, approved: false, reason: "too much" });
await until(() => finished.length === 4 && chat.status === "ready");
[call] = partsOf(chat.lastMessage, "dynamic-tool");
assert.deepEqual([call.state, call.approval.approved], ["output-denied", false]);
assert.equal(textOf(chat.lastMessage), "Not paid.");

// A turn over connections that are cut after each event, read as messages.
const seen = [];
const cut = transport({ fetch: cutting(api, headers, { seen, last: "data: [DONE]\n\n" }) });
const asks = { id: "m9", role: "user", parts: [{ type: "text", text: "Thanks!" }] };
const stream = await cut.sendMessages({ chatId: thread, messages: [asks], trigger: "submit-message" });
let read;
for await (const each of readUIMessageStream({ stream, terminateOnError: true, onError: (error) => failures.push(error) }))
  read = each;
assert.equal(textOf(read), "You are welcome.");
assert.ok(seen.length >= 4);
assert.equal(new Set(seen).size, seen.length);

// A page that is opened again has nothing to resume: the agent waits for a person.
assert.equal(await transport().reconnectToStream({ chatId: thread }), null);

// What the chat has kept is valid: it can be stored, and opened again.
const kept = await safeValidateUIMessages({ messages: [...chat.messages, read] });
assert.ok(kept.success, String(kept.error));
assert.deepEqual(failures, []);
console.log("ok");
