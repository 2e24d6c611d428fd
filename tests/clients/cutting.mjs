// A `fetch` whose responses are cut, and continued by the ids of their events, as the how-to page describes it.

/** Return a `fetch` that reads a few events of each connection, and continues after the last of them. */
export function cutting(url, headers, { each = 1, seen = [], last = "" } = {}) {
  return async (address, init) => {
    let response = await fetch(address, init);
    if (!response.ok || response.status === 204) return response;
    const more = async (id) => {
      if (!id) throw new Error("a stream was cut before its first id");
      return fetch(url, { headers: { ...headers, "Last-Event-ID": id } });
    };
    const body = new ReadableStream({
      async start(controller) {
        for (let id = ""; ; response = await more(id)) {
          if (response.status === 204) break;
          if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
          let taken = 0;
          let over = false;
          for await (const frame of framesOf(response.body)) {
            const own = /^id: (.*)$/m.exec(frame)?.[1];
            if (own) {
              id = own;
              seen.push(own);
            }
            controller.enqueue(new TextEncoder().encode(`${frame}\n\n`));
            over = isLast(frame);
            if (over || (own && ++taken === each)) break;
          }
          if (over) break;
        }
        if (last) controller.enqueue(new TextEncoder().encode(last));
        controller.close();
      },
    });
    return new Response(body, { status: 200, headers: { "Content-Type": "text/event-stream" } });
  };
}

const isLast = (frame) => /"type": ?"(RUN_FINISHED|RUN_ERROR|finish)"/.test(frame);

async function* framesOf(body) {
  let text = "";
  for await (const piece of body.pipeThrough(new TextDecoderStream())) {
    text += piece;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      yield text.slice(0, end);
      text = text.slice(end + 2);
    }
  }
}
