/**
 * A typed client of the Holdfast gateway.
 *
 *     const holdfast = new Holdfast({ url: "https://holdfast.example", token });
 *     const thread = await holdfast.start({ task: "Publish 1.2" });
 *     for await (const event of thread.events()) console.log(event.event, event.data);
 */

import { framesOf, type Frame } from "./events.js";
import type { operations } from "./openapi.js";

export { LONGEST, type Frame } from "./events.js";
export type { components, operations, paths } from "./openapi.js";

type Operation = keyof operations;

/** The body that an operation takes. */
export type BodyOf<Name extends Operation> = operations[Name] extends {
  requestBody?: { content: { "application/json": infer Body } };
}
  ? Body
  : never;

type Content<Responses, Status extends number> = Responses extends {
  [status in Status]: { content: { "application/json": infer Result } };
}
  ? Result
  : never;

/** The result of an operation. */
export type ResultOf<Name extends Operation> = operations[Name] extends { responses: infer Responses }
  ? Content<Responses, 200> | Content<Responses, 201>
  : never;

/** The query that an operation takes. */
export type QueryOf<Name extends Operation> = operations[Name] extends { parameters: { query?: infer Query } }
  ? Exclude<Query, undefined>
  : never;

/** An open request, as `pending` lists it. */
export interface PendingRequest {
  /** Its id in the thread. */
  request: string;
  thread: string;
  tool: string;
  /** The call as it is to run. */
  arguments: unknown;
  /** The digest of what is shown here, which a decision names. */
  digest: string;
  [field: string]: unknown;
}

export interface Options {
  /** The gateway's address. Plain http is accepted for this machine alone, unless `allowHttp` is set. */
  url: string;
  /** A token of the gateway. It is sent to that address alone: redirects are errors. */
  token: string;
  /** Accept plain http to another machine, for example within a cluster. */
  allowHttp?: boolean;
  /** The `fetch` to use instead of the global one. */
  fetch?: typeof fetch;
}

export interface Follow {
  /** Only events after this position; without it, all. */
  after?: number;
  /** Also the replies of the LLM while they are written: `delta` and `superseded`. */
  deltas?: boolean;
  /** Ends the stream. */
  signal?: AbortSignal;
  /** How often in a row a connection may fail before the stream does. */
  attempts?: number;
}

/** The gateway has rejected a request. */
export class GatewayError extends Error {
  override readonly name = "GatewayError";

  /**
   * @param status The HTTP status; 0 if a stream reported the problem.
   * @param outcome A short name, such as `digest_mismatch`; empty for none.
   */
  constructor(
    message: string,
    readonly status: number,
    readonly outcome: string,
  ) {
    super(message);
  }
}

const LOOPBACK = new Set(["127.0.0.1", "localhost", "[::1]"]);
/** After this many milliseconds, a connection that failed is tried again; then after twice as many. */
const FIRST_PAUSE = 250;
const LONGEST_PAUSE = 10_000;

/** The threads of a gateway. */
export class Holdfast {
  readonly #url: string;
  readonly #token: string;
  readonly #fetch: typeof fetch;

  /** @throws TypeError The address cannot be used. */
  constructor(options: Options) {
    const url = new URL(options.url);
    const safe = url.protocol === "https:" || (url.protocol === "http:" && (options.allowHttp || LOOPBACK.has(url.hostname)));
    if (!safe) throw new TypeError(`${url.origin} would get the token without encryption: use https, or set allowHttp`);
    this.#url = url.href.replace(/\/+$/, "");
    this.#token = options.token;
    this.#fetch = options.fetch ?? globalThis.fetch.bind(globalThis);
  }

  /** Start a thread. */
  async start(body: BodyOf<"start_thread">): Promise<Thread> {
    const started = await this.post<ResultOf<"start_thread">>("/threads", body);
    return this.thread(started.thread);
  }

  /** A thread by its id. Nothing is sent. */
  thread(id: string): Thread {
    return new Thread(this, id);
  }

  /** List threads. */
  list(query: QueryOf<"list_threads"> = {}): Promise<ResultOf<"list_threads">> {
    return this.get("/threads", query);
  }

  /** List the open requests of all threads. */
  pending(): Promise<ResultOf<"list_pending_requests">> {
    return this.get("/pending");
  }

  /** Read a path of the API. */
  get<Result>(path: string, query: object = {}): Promise<Result> {
    return this.#json<Result>("GET", path, query);
  }

  /** Send a body to a path of the API. */
  post<Result>(path: string, body: unknown = {}): Promise<Result> {
    return this.#json<Result>("POST", path, {}, body);
  }

  /**
   * Send a request, and return its response.
   *
   * @throws GatewayError The gateway has rejected it.
   */
  async send(method: string, path: string, query: object, init: RequestInit = {}): Promise<Response> {
    const values = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
    const search = new URLSearchParams(values.map(([name, value]) => [name, String(value)])).toString();
    const headers = new Headers(init.headers);
    headers.set("Authorization", `Bearer ${this.#token}`);
    const address = `${this.#url}${path}${search ? `?${search}` : ""}`;
    const response = await this.#fetch(address, {
      ...init,
      method,
      headers,
      redirect: "error",
      credentials: "omit",
      cache: "no-store",
    });
    if (response.ok) return response;
    throw await problemOf(response);
  }

  async #json<Result>(method: string, path: string, query: object, body?: unknown): Promise<Result> {
    const headers: Record<string, string> = { Accept: "application/json" };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const content = body === undefined ? {} : { body: JSON.stringify(body) };
    return (await (await this.send(method, path, query, { headers, ...content })).json()) as Result;
  }
}

/** A thread of a gateway. */
export class Thread {
  readonly #gateway: Holdfast;
  readonly #path: string;

  constructor(
    gateway: Holdfast,
    readonly id: string,
  ) {
    this.#gateway = gateway;
    this.#path = `/threads/${encodeURIComponent(id)}`;
  }

  /** Read the state. */
  state(): Promise<ResultOf<"get_thread">> {
    return this.#gateway.get(this.#path);
  }

  /** Read the open requests. */
  async pending(): Promise<PendingRequest[]> {
    const found = await this.#gateway.get<ResultOf<"list_pending_of_thread">>(`${this.#path}/pending`);
    return found.pending as unknown as PendingRequest[];
  }

  /** Read a page of messages. */
  messages(query: QueryOf<"list_messages"> = {}): Promise<ResultOf<"list_messages">> {
    return this.#gateway.get(`${this.#path}/messages`, query);
  }

  /** Wait for the result, for at most the time that the gateway waits. */
  result(query: QueryOf<"get_result"> = {}): Promise<ResultOf<"get_result">> {
    return this.#gateway.get(`${this.#path}/result`, query);
  }

  /** Send the agent a message. */
  say(body: BodyOf<"send_message">): Promise<ResultOf<"send_message">> {
    return this.#gateway.post(`${this.#path}/messages`, body);
  }

  /** Decide a request. Its digest binds the decision to what was shown. */
  decide(body: BodyOf<"decide_request">): Promise<ResultOf<"decide_request">> {
    return this.#gateway.post(`${this.#path}/decisions`, body);
  }

  /** Approve a request as it was listed: if it has changed since, nothing runs. */
  approve(request: PendingRequest, more: Partial<BodyOf<"decide_request">> = {}): Promise<ResultOf<"decide_request">> {
    return this.decide({ ...more, decision: "approve", request: request.request, digest: request.digest });
  }

  /** Deny a request as it was listed. The agent reads the reason. */
  deny(request: PendingRequest, reason = ""): Promise<ResultOf<"decide_request">> {
    return this.decide({ decision: "deny", request: request.request, digest: request.digest, reason });
  }

  /** Pause the run. */
  pause(body: BodyOf<"pause_run"> = {}): Promise<ResultOf<"pause_run">> {
    return this.#gateway.post(`${this.#path}/pause`, body);
  }

  /** Resume the run after a pause. */
  resume(body: BodyOf<"resume_run"> = {}): Promise<ResultOf<"resume_run">> {
    return this.#gateway.post(`${this.#path}/resume`, body);
  }

  /** Resume the run after its cause was fixed. */
  retry(body: BodyOf<"retry_run"> = {}): Promise<ResultOf<"retry_run">> {
    return this.#gateway.post(`${this.#path}/retries`, body);
  }

  /** Cancel the run. */
  cancel(body: BodyOf<"cancel_run"> = {}): Promise<ResultOf<"cancel_run">> {
    return this.#gateway.post(`${this.#path}/cancellations`, body);
  }

  /** Fork the thread at one of its events. */
  async fork(body: BodyOf<"fork_thread"> = {}): Promise<Thread> {
    const forked = await this.#gateway.post<ResultOf<"fork_thread">>(`${this.#path}/forks`, body);
    return this.#gateway.thread(forked.thread);
  }

  /**
   * Follow the events until the run is over. A connection that breaks is made again, from the last id that arrived, so
   * that no event is missed and none comes twice.
   *
   * @throws GatewayError The gateway has rejected the request.
   */
  async *events(options: Follow = {}): AsyncGenerator<Frame, void, undefined> {
    const { deltas = false, signal, attempts = 10 } = options;
    let last = String(options.after ?? -1);
    let failed = 0;
    for (;;) {
      try {
        const headers = { Accept: "text/event-stream", "Last-Event-ID": last };
        const init: RequestInit = signal ? { headers, signal } : { headers };
        const response = await this.#gateway.send("GET", `${this.#path}/events`, { deltas }, init);
        if (response.status === 204 || !response.body) return;
        for await (const frame of framesOf(response.body)) {
          if (frame.event === "problem") throw new GatewayError(detailOf(frame.data), 0, "");
          if (frame.event === "end") return;
          if (frame.id) last = frame.id;
          failed = 0;
          yield frame;
        }
      } catch (error) {
        const lasting = error instanceof GatewayError && error.status >= 400 && ![429, 502, 503, 504].includes(error.status);
        if (signal?.aborted || lasting || error instanceof RangeError || error instanceof SyntaxError) throw error;
        if (failed + 1 >= attempts) throw error;
      }
      failed += 1;
      await pause(Math.min(FIRST_PAUSE * 2 ** (failed - 1), LONGEST_PAUSE), signal);
    }
  }
}

async function problemOf(response: Response): Promise<GatewayError> {
  const problem: unknown = await response.json().catch(() => ({}));
  const fields = typeof problem === "object" && problem !== null ? (problem as Record<string, unknown>) : {};
  const outcome = typeof fields["outcome"] === "string" ? fields["outcome"] : "";
  return new GatewayError(detailOf(problem) || `the gateway answered ${response.status}`, response.status, outcome);
}

function detailOf(problem: unknown): string {
  const detail = typeof problem === "object" && problem !== null && "detail" in problem ? problem.detail : "";
  return typeof detail === "string" ? detail : JSON.stringify(detail);
}

function pause(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((done, fail) => {
    const stop = (): void => {
      clearTimeout(timer);
      fail(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      done();
    }, milliseconds);
    signal?.addEventListener("abort", stop, { once: true });
  });
}
