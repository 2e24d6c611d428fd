/** Server-sent events of a thread: parsed as they arrive, and resumed by their ids after a cut. */

/** A server-sent event. */
export interface Frame {
  /** The position of the event; of a delta POSITION.ATTEMPT.CHUNK; empty for none. */
  id: string;
  /** The type of the event: that of the log's event, `delta`, `superseded`, `end` or `problem`. */
  event: string;
  /** The data, as JSON. */
  data: unknown;
}

/** The longest event, in characters: a server cannot make a client keep more. */
export const LONGEST = 16 * 1024 * 1024;

/**
 * Yield the server-sent events of a body.
 *
 * @param body The body of a response.
 * @throws RangeError An event is longer than `LONGEST`.
 * @throws SyntaxError The data of an event is not JSON.
 */
export async function* framesOf(body: ReadableStream<Uint8Array>): AsyncGenerator<Frame, void, undefined> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  let lines: string[] = [];
  let size = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return; // an event that is cut before its blank line does not count
      text += decoder.decode(value, { stream: true });
      if (text.length + size > LONGEST) throw new RangeError(`an event is longer than ${LONGEST} characters`);
      for (let end = endOfLine(text); end; end = endOfLine(text)) {
        const line = text.slice(0, end.at);
        text = text.slice(end.next);
        if (line === "") {
          const frame = frameOf(lines);
          lines = [];
          size = 0;
          if (frame) yield frame;
        } else {
          lines.push(line);
          size += line.length;
        }
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

/** Return where the first line ends and the next one begins. A CR at the very end may be half of a CRLF. */
function endOfLine(text: string): { at: number; next: number } | undefined {
  const at = text.search(/[\r\n]/);
  if (at < 0 || (text[at] === "\r" && at === text.length - 1)) return undefined;
  return { at, next: at + (text.startsWith("\r\n", at) ? 2 : 1) };
}

function frameOf(lines: string[]): Frame | undefined {
  const data: string[] = [];
  let id = "";
  let event = "message";
  for (const line of lines) {
    const colon = line.indexOf(":");
    if (colon === 0) continue; // a comment
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") data.push(value);
    else if (name === "id" && !value.includes("\0")) id = value;
    else if (name === "event") event = value;
  }
  return data.length ? { id, event, data: JSON.parse(data.join("\n")) as unknown } : undefined;
}
