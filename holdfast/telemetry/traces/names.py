"""The names in our traces: OpenTelemetry's conventions for generative AI, and our own below `holdfast.`.

The conventions are young, and still rename things: no other module contains a name of theirs.
"""

from typing import Final

CONVENTIONS: Final = "0.1.0"
"""The release of OpenTelemetry's GenAI semantic conventions whose names these are."""

SCOPE: Final = "holdfast"
"""The instrumentation scope of our spans."""

# Operations, which begin the names of spans: `invoke_agent support`, `chat gpt-5-mini`, `execute_tool refund`.
INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"

OPERATION: Final = "gen_ai.operation.name"
CONVERSATION: Final = "gen_ai.conversation.id"
AGENT: Final = "gen_ai.agent.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_ID: Final = "gen_ai.response.id"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
TOOL: Final = "gen_ai.tool.name"
TOOL_CALL: Final = "gen_ai.tool.call.id"
TOOL_TYPE: Final = "gen_ai.tool.type"
ERROR: Final = "error.type"

# Content: recorded only if that is switched on.
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOOL_RESULT: Final = "gen_ai.tool.call.result"

# Our own.
RUN: Final = "holdfast.run.id"
"""The first run id of the chain of Temporal runs."""
OUTCOME: Final = "holdfast.run.outcome"
CAUSE: Final = "holdfast.run.cause"
DEPTH: Final = "holdfast.run.depth"
SCHEDULE: Final = "holdfast.run.schedule"
ACTIVATIONS: Final = "holdfast.run.activations"
ACTIVATION: Final = "holdfast.activation.number"
FIRST: Final = "holdfast.activation.first_position"
LAST: Final = "holdfast.activation.last_position"
POSITION: Final = "holdfast.position"
STEPS: Final = "holdfast.steps"
TOOL_CALLS: Final = "holdfast.tool_calls"
COST: Final = "holdfast.cost_usd"
ATTEMPT: Final = "holdfast.attempt"
FAILED_ATTEMPTS: Final = "holdfast.failed_attempts"
ENDPOINT: Final = "holdfast.llm.endpoint"
CALL: Final = "holdfast.tool.call"
"""The number of a call in its thread."""
STATUS: Final = "holdfast.tool.status"
VERDICT: Final = "holdfast.tool.verdict"
ADOPTED: Final = "holdfast.tool.adopted"
PARENT_THREAD: Final = "holdfast.parent.thread"
PARENT_CALL: Final = "holdfast.parent.call"
SUBAGENT: Final = "holdfast.subagent.thread"

# Waits are attributes and never spans: an open span of weeks is exported by nobody.
WAITED_FOR: Final = "holdfast.wait.before.kind"
WAITED: Final = "holdfast.wait.before.seconds"
WAITS_FOR: Final = "holdfast.wait.after.kind"
WAITS: Final = "holdfast.waits"
WAITED_IN_ALL: Final = "holdfast.wait.seconds"

APPROVAL_REQUEST: Final = "holdfast.approval.request"
APPROVAL_KIND: Final = "holdfast.approval.kind"
APPROVAL_RULE: Final = "holdfast.approval.rule"
APPROVAL_DECISION: Final = "holdfast.approval.decision"
APPROVAL_OUTCOME: Final = "holdfast.approval.outcome"
APPROVAL_PROOF: Final = "holdfast.approval.proof"
APPROVAL_EDITED: Final = "holdfast.approval.edited"
APPROVAL_SECONDS: Final = "holdfast.approval.wait.seconds"
APPROVAL_REMINDERS: Final = "holdfast.approval.reminders"
APPROVAL_ESCALATIONS: Final = "holdfast.approval.escalations"
APPROVAL_BY: Final = "holdfast.approval.by"
"""A person's name: content, like what the person wrote."""
APPROVAL_REASON: Final = "holdfast.approval.reason"

LINK: Final = "holdfast.link"
"""What a link leads to: `previous_activation`, `run`, `activation`, `parent_run`, `subagent` or `caller`."""
