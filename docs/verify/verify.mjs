// Verify a log of Holdfast: `starter.py log THREAD --json | node verify.mjs`, or `node verify.mjs FILE [HEAD]`.
//
// Checks that each line is canonical JSON (RFC 8785), has its position, and continues the chain of digests; with HEAD,
// the digest of the last event, that the log ends there. Without it, a log that was cut short is not detected. Not
// checked: signatures, what the events mean, and who wrote them: anybody can compute a chain anew.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

/** Write JSON as RFC 8785 does: the numbers are ECMAScript's, and `sort` compares UTF-16. */
export function canonical(value) {
  if (typeof value === "number" && !Number.isFinite(value)) throw new Error("a number is infinite");
  if (typeof value === "string" && /[\ud800-\udfff]/u.test(value)) throw new Error("a lone surrogate");
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  const members = Object.keys(value).sort().map((key) => `${canonical(key)}:${canonical(value[key])}`);
  return `{${members.join(",")}}`;
}

/** Return the first event that is not sound, or the head of a sound log. */
export function verify(data, head = "") {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  const end = data.at(-1) === 10 ? data.length - 1 : data.length;
  let [digest, place] = ["0".repeat(64), 0];
  for (let start = 0, stop; start <= end; start = stop + 1, place += 1) {
    stop = data.subarray(0, end).indexOf(10, start);
    if (stop < 0) stop = end;
    let event, claimed;
    try {
      const line = decoder.decode(data.subarray(start, stop));
      event = JSON.parse(line);
      if (!line.startsWith("{") || canonical(event) !== line) throw new Error("written otherwise");
      claimed = event.digest;
      delete event.digest;
      digest = createHash("sha256").update(digest + canonical(event)).digest("hex");
    } catch {
      return `event ${place}: the line is not canonical JSON`;
    }
    if (event.position !== place || claimed !== digest) {
      return `event ${place}: it was altered, or another one is in its place`;
    }
  }
  if (head !== "" && head !== digest) return `event ${place}: the head is another`;
  return `head ${digest}, ${place} events`;
}

if (process.argv.length > 1) {
  let found;
  try {
    found = verify(readFileSync(process.argv[2] ?? 0), process.argv[3]);
  } catch (error) {
    found = `event 0: ${error.message}`;
  }
  console.log(found);
  process.exitCode = found.startsWith("event") ? 1 : 0;
}
