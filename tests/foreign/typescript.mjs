// A server of the official TypeScript SDK, of the protocol of 2026-07-28.
import { McpServer, acceptedContent, inputRequired } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import * as z from "zod/v4";

const text = (content) => ({ content: [{ type: "text", text: content }] });

serveStdio(() => {
  const server = new McpServer({ name: "typescript", version: "1.0.0" });
  server.registerTool(
    "add",
    {
      description: "Add two numbers.",
      inputSchema: z.object({ a: z.number().describe("The first."), b: z.number() }),
      outputSchema: z.object({ sum: z.number() }),
    },
    async ({ a, b }) => ({ ...text(JSON.stringify({ sum: a + b })), structuredContent: { sum: a + b } }),
  );
  server.registerTool("fail", { description: "Fail.", inputSchema: z.object({}) }, async () => {
    throw new Error("it fails");
  });
  server.registerTool(
    "greet",
    { description: "Greet whom people name.", inputSchema: z.object({ word: z.enum(["Hello", "Bye"]) }) },
    async ({ word }, context) => {
      const form = z.object({ name: z.string() });
      const answer = acceptedContent(context.mcpReq.inputResponses, "who", form);
      if (answer) return text(`${word}, ${answer.name}`);
      const who = inputRequired.elicit({ message: "Who is it?", requestedSchema: form });
      return inputRequired({ inputRequests: { who } });
    },
  );
  return server;
});
