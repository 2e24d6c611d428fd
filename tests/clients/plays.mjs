// Reads random threads, as AG-UI and as UI messages, with both clients; prints what each shows of a thread in the end.
import assert from "node:assert/strict";

import { HttpAgent } from "@ag-ui/client";
import { DefaultChatTransport, readUIMessageStream } from "ai";

const complaints = [];
console.warn = console.error = (...said) => complaints.push(said.map(String).join(" "));

let input = "";
for await (const piece of process.stdin.setEncoding("utf8")) input += piece;

const streamOf = (events, last = "") =>
  new Response(events.map((each) => `data: ${JSON.stringify(each)}\n\n`).join("") + last, {
    headers: { "Content-Type": "text/event-stream" },
  });

/** Return the texts, the reasoning and the number of results of calls that an AG-UI client has after some runs of the protocol. */
async function agUi(runs) {
  const agent = new HttpAgent({ url: "http://127.0.0.1/", threadId: "t" });
  for (const [number, events] of runs.entries()) {
    agent.fetch = async () => streamOf(events);
    const resume = agent.pendingInterrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload: true }));
    await agent.runAgent({ runId: `run-${number}`, ...(resume.length ? { resume } : {}) }, {
      onUnrecognizedEvent: ({ event }) => void complaints.push(JSON.stringify(event)),
    });
  }
  const texts = agent.messages.filter((each) => each.role === "assistant" && each.content).map((each) => each.content);
  const thoughts = agent.messages.filter((each) => each.role === "reasoning" && each.content).map((each) => each.content);
  return { texts, thoughts, results: agent.messages.filter((each) => each.role === "tool").length };
}

/** Return the same of a chat of the AI SDK after some responses. */
async function aiSdk(responses) {
  const messages = [];
  for (const chunks of responses) {
    const transport = new DefaultChatTransport({ api: "http://127.0.0.1/", fetch: async () => streamOf(chunks, "data: [DONE]\n\n") });
    const stream = await transport.sendMessages({ chatId: "t", messages: [], trigger: "submit-message" });
    const kept = [];
    let error;
    const last = messages.at(-1);
    const message = last?.metadata?.ending === "asked" ? messages.pop() : undefined;
    for await (const each of readUIMessageStream({ message, stream, onError: (failure) => (error = failure) })) kept[0] = each;
    const failed = chunks.some((each) => each.type === "error");
    assert.ok(!error || failed, `${error}`);
    messages.push(kept[0]);
  }
  const parts = messages.flatMap((each) => each.parts);
  const shown = (type) =>
    parts.filter((each) => each.type === type && !each.providerMetadata?.holdfast?.superseded).map((each) => each.text);
  const ended = parts.filter((each) => each.type === "dynamic-tool" && each.state.startsWith("output-"));
  return { texts: shown("text"), thoughts: shown("reasoning"), results: new Set(ended.map((each) => each.toolCallId)).size };
}

const found = [];
for (const play of JSON.parse(input)) found.push({ ag_ui: await agUi(play.ag_ui), ui: await aiSdk(play.ui) });
assert.deepEqual(complaints, []);
console.log(JSON.stringify(found));
