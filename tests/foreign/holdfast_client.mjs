// Uses the built TypeScript client as a program does; its arguments are the gateway's URL and a token.
import assert from "node:assert/strict";
import { createServer } from "node:http";

import { GatewayError, Holdfast, LONGEST } from "../../clients/typescript/dist/index.js";

const [url, token] = process.argv.slice(2);

/** Serve each connection with the next text, and return the address and what was asked for. */
async function serving(texts, type = "text/event-stream") {
  const asked = [];
  const server = createServer((request, response) => {
    asked.push(request.headers);
    const text = texts[Math.min(asked.length, texts.length) - 1];
    if (typeof text === "number") response.writeHead(text, { Location: "http://127.0.0.1:9/" }).end();
    else {
      response.writeHead(200, { "Content-Type": type });
      for (const part of text) response.write(part);
      if (text.cut) response.socket.destroySoon();
      else response.end();
    }
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return { url: `http://127.0.0.1:${server.address().port}`, asked, close: () => server.close() };
}

async function all(events) {
  const found = [];
  for await (const each of events) found.push(each);
  return found;
}

// A run: started, followed, denied by its digest, and read.
const holdfast = new Holdfast({ url, token });
const thread = await holdfast.start({ task: "Pay invoice 4711" });
let decided;
const types = [];
for await (const frame of thread.events()) {
  types.push(frame.event);
  if (frame.event === "approval_requested") {
    const [request] = await thread.pending();
    assert.equal(request.tool, "pay");
    await assert.rejects(
      thread.approve({ ...request, digest: "0".repeat(64) }),
      (error) => error instanceof GatewayError && error.status === 409 && error.outcome === "digest_mismatch",
    );
    decided = await thread.approve(request, { say: "Once." });
  }
}
assert.equal(decided.outcome, "accepted");
assert.equal(types.at(-1), "run_finished");
assert.equal((await thread.state()).status, "completed");
const positions = (await all(thread.events())).map((frame) => frame.id);
assert.deepEqual(positions, [...positions.keys()].map(String));
const rest = await all(thread.events({ after: 2 }));
assert.equal(rest[0].id, "3");
const fork = await thread.fork({ at: 4 });
assert.match(fork.id, /-fork-/);
await assert.rejects(holdfast.thread("no/such").state(), { name: "GatewayError", status: 404 });
await assert.rejects(new Holdfast({ url, token: "x" }).pending(), { status: 401 });

// A stream that is cut anywhere is resumed after the last whole event, whatever its line ends are.
const parts = Object.assign([": hello\n\nid: 7\r\nevent: a\r\ndata: {\"x\":\r\n", "data: 1}\r", "\n\r\nid: 8\ndata: 2"], { cut: true });
const cut = await serving([parts, 503, ["id: 8\nevent: b\ndata: 2\n\nevent: end\ndata: {}\n\n"]]);
const resumed = await all(new Holdfast({ url: cut.url, token: "t" }).thread("x").events());
assert.deepEqual(resumed, [{ id: "7", event: "a", data: { x: 1 } }, { id: "8", event: "b", data: 2 }]);
assert.deepEqual(cut.asked.map((headers) => headers["last-event-id"]), ["-1", "7", "7"]);
cut.close();

// A server that leads elsewhere, never ends an event or cuts each time gets neither the token nor the memory.
assert.throws(() => new Holdfast({ url: "http://gateway.example", token }), TypeError);
const elsewhere = await serving([302]);
await assert.rejects(new Holdfast({ url: elsewhere.url, token: "t" }).pending(), TypeError);
assert.equal(elsewhere.asked.length, 1);
elsewhere.close();
const endless = await serving([["data: ", ...Array(18).fill("x".repeat(LONGEST / 16))]]);
await assert.rejects(all(new Holdfast({ url: endless.url, token: "t" }).thread("x").events()), RangeError);
endless.close();
const broken = await serving([500, 503]);
await assert.rejects(all(new Holdfast({ url: broken.url, token: "t" }).thread("x").events({ attempts: 2 })), { status: 500 });
broken.close();

// A stream ends when its reader does.
const stop = new AbortController();
const waiting = await serving([["id: 1\ndata: 1\n\n"]]);
const seen = [];
await assert.rejects(async () => {
  for await (const frame of new Holdfast({ url: waiting.url, token: "t" }).thread("x").events({ signal: stop.signal })) {
    seen.push(frame.id);
    stop.abort();
  }
});
assert.deepEqual(seen, ["1"]);
waiting.close();
console.log("ok");
