// A client of the official TypeScript SDK: gives an agent a task, and reads the result with the tool `result`.
//
//     node mcp_client.mjs URL TOKEN MODE
//
// It prints a line of JSON for what it sees. The SDK has no tasks extension, so the run's thread comes at once.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [url, token, mode] = process.argv.slice(2);
const print = (line) => console.log(JSON.stringify(line));
const options = { capabilities: {}, versionNegotiation: { mode } };
const client = new Client({ name: "typescript", version: "1.0.0" }, options);
const requestInit = { headers: { Authorization: `Bearer ${token}` } };
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));

const { tools } = await client.listTools();
print({ tools: tools.map((tool) => tool.name).sort() });
const began = await client.callTool({ name: "clerk", arguments: { task: "Pay the invoice." } });
const { thread } = began.structuredContent;
print({ thread });
let result;
do {
  if (result) print({ waits: result.structuredContent.status });
  result = await client.callTool({ name: "result", arguments: { thread, wait: 5 } });
} while (!["completed", "failed", "cancelled"].includes(result.structuredContent.status));
print({ error: result.isError ?? false, text: result.content[0].text, structured: result.structuredContent });
const failed = await client.callTool({ name: "clerk", arguments: { tasks: "?" } }).catch((error) => ({ thrown: `${error}` }));
print({ rejected: Boolean(failed.thrown ?? failed.isError) });
await client.close();
