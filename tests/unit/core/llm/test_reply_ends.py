"""The end of a reply, in the words and forms of many providers; a reply that is no answer goes back to the LLM."""

import json
from typing import Any

import pytest

from holdfast.activities.llm_calls.llm_replies import NotAReply, read_reply
from holdfast.core.llm.adapters import Adapter
from holdfast.core.llm.finish_reasons import CUT_OFF, WRITTEN_CALL, finish_reason
from holdfast.core.llm.thoughts import split_thoughts
from holdfast.core.llm.written_calls import intended_tool, written_call
from holdfast.core.log.events import ReplyRejected, RunBlocked, ToolCallFinished
from holdfast.core.run.contracts.llm_calls import LLMReply
from holdfast.core.run.decide.replies import on_reply
from holdfast.core.run.state.features import BLOCK_SAYS_WHY, CUT_OFF_CALLS
from tests.support.neutral import APIS
from tests.support.runs import NOW, agent_spec, calls, loaded_thread
from tests.support.values import Wire

ADAPTERS = {api.adapter.issuer: api.adapter for api in APIS}
each_adapter = pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=list(ADAPTERS))


def wire(issuer: str, word: Any, *, text: str = "", called: tuple[tuple[str, Any], ...] = ()) -> Wire:
    """Return an API's reply with this text, these calls and this finish reason."""
    match issuer:
        case "chat_completions":
            tool_calls = [
                {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": arguments}}
                for at, (name, arguments) in enumerate(called)
            ]
            return {"choices": [{"finish_reason": word, "message": {"content": text, "tool_calls": tool_calls}}]}
        case "responses":
            message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
            items: list[Wire] = [
                {"type": "function_call", "call_id": f"c{at}", "name": name, "arguments": arguments}
                for at, (name, arguments) in enumerate(called)
            ]
            ended = word in ("completed", "stop", "tool_calls")
            details = {} if ended else {"incomplete_details": {"reason": word}}
            return {"output": [message, *items], "status": "completed" if ended else "incomplete", **details}
    blocks = [
        {"type": "tool_use", "id": f"c{at}", "name": name, "input": arguments}
        for at, (name, arguments) in enumerate(called)
    ]
    return {"content": [{"type": "text", "text": text}, *blocks], "stop_reason": word}


def read(adapter: Adapter, reply: Wire, *, asked: bool = False) -> LLMReply:
    """Read a reply to an agent that has `look`, `pay` and `wipe`."""
    body = json.dumps(reply).encode()
    return read_reply(body, adapter=adapter, spec=agent_spec(), tools={}, step_id="s", asked=asked)


CUT = (
    "length",
    "max_tokens",
    "MAX_TOKENS",
    "MaxTokens",
    "max_output_tokens",
    "model_length",
    "incomplete",
    "truncated",
)
OTHER = ("content_filter", "SAFETY", "content_filter: RECITATION", "guardrail_intervened", "pause_turn", "who knows")


@each_adapter
@pytest.mark.parametrize("arguments", ["", "{}", None, " ", '{"a": 1', '{"a": 1}', {}, {"a": 1}])
def test_the_last_call_of_a_reply_that_was_cut_off_never_runs(adapter: Adapter, arguments: Any) -> None:
    """Its arguments may lack a part, however complete they look; the calls before it are complete, and may run."""
    state = loaded_thread().state
    for word in (*CUT, *OTHER):
        reply = read(adapter, wire(adapter.issuer, word, called=(("look", "{}"), ("pay", arguments))))
        assert reply.problems == {"c1": CUT_OFF}, word
        events = on_reply(state, reply, shown=1, at=NOW)
        ended = {event.number: event for event in events if isinstance(event, ToolCallFinished)}
        assert ended.keys() == {2}, word
        assert "cut off" in str(ended[2].content), word


@pytest.mark.parametrize(("features", "statuses"), [(0, []), (CUT_OFF_CALLS, ["invalid"])])
def test_the_run_itself_decides_that_a_cut_call_does_not_run(features: int, statuses: list[str]) -> None:
    """A worker of an earlier release may have read the reply; below the feature level, histories stay as recorded."""
    reply = calls("look", "pay").model_copy(update={"finish_reason": "MAX_TOKENS"})
    events = on_reply(loaded_thread(features=features).state, reply, shown=1, at=NOW)
    assert [event.status for event in events if isinstance(event, ToolCallFinished)] == statuses


def test_a_call_that_its_item_marks_as_incomplete_does_not_run() -> None:
    """The Responses API marks each call."""
    reply = wire("responses", "completed", called=(("look", "{}"), ("pay", "{}")))
    reply["output"][1]["status"] = "incomplete"
    assert read(ADAPTERS["responses"], reply).problems == {"c0": CUT_OFF}


@each_adapter
@pytest.mark.parametrize("word", [*CUT, *OTHER, "tool_calls!", 7])
def test_text_is_no_answer_unless_the_llm_ended_it(adapter: Adapter, word: Any) -> None:
    """The LLM gets the reason, and replies again."""
    assert read(adapter, wire(adapter.issuer, word, text="The three steps are: first,")).rejected


@pytest.mark.parametrize("word", ["tool_calls", "function_call", "TOOL_CALL", "tool_use"])
def test_announced_calls_that_are_missing_are_no_answer(word: str) -> None:
    """Some servers lose the calls, and keep the text before them."""
    for issuer in ("chat_completions", "anthropic_messages"):
        assert "announces" in read(ADAPTERS[issuer], wire(issuer, word, text="Let me look.")).rejected


@each_adapter
@pytest.mark.parametrize(
    "text",
    ["", " \n", "\u200b", "\xa0", "\u2800\u3164", "<think>hm</think>", "<think>hm", "hm\n</think>\n", "<|im_end|>"],
)
def test_an_invisible_reply_is_no_answer(adapter: Adapter, text: str) -> None:
    """Blank text, invisible text or thoughts alone are an empty reply."""
    assert read(adapter, wire(adapter.issuer, "stop", text=text)).rejected == "it is empty."


@pytest.mark.parametrize("word", ["error", "network_error", "aborted", "insufficient_system_resource", "ERROR"])
def test_a_reply_that_broke_off_is_a_fault_of_the_endpoint(word: str) -> None:
    """Temporal repeats the call, because the LLM can do nothing about it."""
    with pytest.raises(NotAReply):
        read(ADAPTERS["chat_completions"], wire("chat_completions", word, text="I w"))


WORDS: dict[str, list[Any]] = {
    "stop": ["stop", "STOP", "end_turn", "EndTurn", "eos", "eosFound", "COMPLETE", "FinishReason.STOP", "", None],
    "tool_calls": ["tool_calls", "toolCalls", "TOOL_CALL", "function_call", "tool_use"],
    "length": [
        *CUT,
        "Length",
        "token_limit",
        "maxPredictedTokensReached",
        "model_context_window_exceeded",
        "ERROR_LIMIT",
    ],
    "content_filter": ["SAFETY", "RECITATION", "IMAGE_SAFETY", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII", "refusal"],
    "malformed_call": [
        "MALFORMED_FUNCTION_CALL",
        "function_call_filter: MALFORMED_FUNCTION_CALL",
        "UNEXPECTED_TOOL_CALL",
    ],
    "error": ["error", "failed", "ABORT", "error: stop"],
    "unreadable": [5, {}, {"value": "stop"}, True],
    "pause_turn": ["pause_turn"],
}


@pytest.mark.parametrize(("reason", "word"), [(reason, word) for reason, words in WORDS.items() for word in words])
def test_one_table_has_the_finish_reasons_of_all_providers(reason: str, word: Any) -> None:
    """A word that no table has is kept, and ends no reply."""
    assert finish_reason(word) == reason
    assert finish_reason(reason) == reason


WRITTEN = [
    '<tool_call>\n{"name": "look", "arguments": {"q": "a"}}\n</tool_call>',
    '{"name": "look", "arguments": {"q": "a"}}',
    '{"name": "look", "parameters": {"q": "a"}}',
    "{'name': 'look', 'arguments': {'q': True}}",
    '{"name": "look", "arguments": {"q": "a"',
    '[{"name": "functions.look", "arguments": {}}]',
    '```json\n{"tool": "look", "tool_input": {}}\n```',
    '{"tool_calls": [{"type": "function", "function": {"name": "look", "arguments": "{}"}}]}',
    "<function=look>\n<parameter=q>\na\n</parameter>\n</function>",
    '<function_calls>\n<invoke name="look">\n</invoke>\n</function_calls>',
    '<invoke name="look"></invoke>',
    '[TOOL_CALLS][{"name": "look", "arguments": {}}]',
    '[TOOL_CALLS]look[ARGS]{"q": 1}',
    '<|python_tag|>look.call(q="a")',
    '<|channel|>commentary to=functions.look <|constrain|>json<|message|>{"q": "a"}<|call|>',
    'commentary to=functions.look json{"q": 1}',
    "<\uff5ctool\u2581calls\u2581begin\uff5c>function<\uff5ctool\u2581sep\uff5c>look",
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.look:0<|tool_call_argument_begin|>{}",
    '<minimax:tool_call><invoke name="look"></invoke></minimax:tool_call>',
    "<tool_call>look\n<arg_key>q</arg_key>\n<arg_value>a</arg_value>\n</tool_call>",
    'Thought: hm\nAction: look\nAction Input: {"q": "a"}',
    'look(q="a")',
    '[look(q="a")]',
    '```tool_code\nprint(default_api.look(q="a"))\n```',
    'Let me look.\n<tool_call>{"name": "look", "arguments": {}}</tool_call>',
    'Sure.\n{"name": "look", "arguments": {"q": "a"}}',
    '<think>I look.</think>\n<tool_call>{"name": "look", "arguments": {}}</tool_call>',
    'functools[{"name": "look", "arguments": {"q": "a"}}]',
    'I look.\n<|tool_call_start|>[look(q="a")]<|tool_call_end|>',
    "<longcat_tool_call>look\n<longcat_arg_key>q</longcat_arg_key>",
    '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "look", "parameters": {}}]<|END_ACTION|>',
    '<tools>\n{"name": "look", "arguments": {"q": "a"}}\n</tools>',
    'I look.\n<tools>{"name": "look", "arguments": {"q": "a"}}</tools>',
    "<use_mcp_tool>\n<server_name>s</server_name>\n<tool_name>look</tool_name>\n</use_mcp_tool>",
    'analysisI should look.assistantcommentary to=functions.look json{"q": "a"}',
    '<execute>look(q="a")</execute>',
    '>>>look\n{"q": "a"}',
    'look\n{"q": "a"}',
    'Tool call: look({"q": "a"})',
]


@each_adapter
@pytest.mark.parametrize("text", WRITTEN)
def test_a_call_written_as_text_is_no_answer(adapter: Adapter, text: str) -> None:
    """The call is not run either, as it could be quoted from a page: the LLM is asked for a proper call each time."""
    for asked in (False, True):
        assert read(adapter, wire(adapter.issuer, "stop", text=text), asked=asked).rejected.startswith(WRITTEN_CALL)


MENTIONED = [
    'To call it, write:\n```json\n{"name": "look", "arguments": {"q": "a"}}\n```\nThen wait.',
    'To call it, write:\n```json\n{"name": "look", "arguments": {"q": "a"}}\n```',
    "Use <tool_call> tags around the JSON.",
    '{"look": {"q": "a"}}',
    '{"tool": "look", "q": "a"}',
    'found = look(q="a")',
    '[Called look with arguments {"q": "a"}]',
    'Calling tool: look\nArguments: {"q": "a"}',
]


@pytest.mark.parametrize("text", MENTIONED)
def test_an_answer_that_shows_a_call_is_one_after_the_llm_was_asked(text: str) -> None:
    """The text may be a call of a server without a parser; if the LLM repeats it when asked, it is the answer."""
    reply = wire("chat_completions", "stop", text=text)
    assert read(ADAPTERS["chat_completions"], reply).rejected.startswith(WRITTEN_CALL)
    assert read(ADAPTERS["chat_completions"], reply, asked=True).rejected == ""


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Bob", "arguments": ["a"]}',
        '{"tools": [{"name": "look", "description": "d", "parameters": {}}]}',
        "The tool look takes JSON.",
        'The form is `<tool_call>{"name": "look"}</tool_call>`, as asked.',
        'I called look(q="a") and found it.',
        "Action: look at the plan, then rest.",
        "[look](https://a.example)",
        "def look(q):\n    return 1",
        '{"name": "look"}',
        '{"look": 3}',
        '{"tool": "hammer", "q": "a"}',
        "Called look (it found two).",
        "look",
        "look: {nothing}",
    ],
)
def test_json_and_prose_about_tools_are_answers_at_once(text: str) -> None:
    """Nothing in them can be a call of one of the agent's tools."""
    assert written_call(text, ["look"]) == ""


def test_an_agent_without_tools_makes_no_calls() -> None:
    """Its answer may be any text."""
    assert written_call(WRITTEN[0], []) == ""


@pytest.mark.parametrize(
    "piece",
    [
        "<tool",
        "{",
        '{"name":"look",',
        "Action: look\n",
        "look(",
        "`",
        "```\n",
        "[\n",
        "<a:",
        " ",
        "<a>",
        "look {",
        "a=",
        "call look {",
        "<tool_",
        "look\n",
        "</s>",
        "<|im_end|> ",
    ],
)
def test_hostile_text_is_searched_in_one_pass(piece: str) -> None:
    """No text of 900 kB makes the search for calls or thoughts slow."""
    text = piece * (900_000 // len(piece))
    assert written_call(text, ["look"]) in ("", "mention", "call")
    assert len(split_thoughts(text)) == 2


@pytest.mark.parametrize(
    ("text", "thought", "answer"),
    [
        ("<think>6 times 7</think>\n42", "6 times 7", "42"),
        ("<thinking>a</thinking>\n42", "a", "42"),
        ("6 times 7\n</think>\n\n42", "6 times 7", "42"),
        ("6 times 7.</think>\n42", "6 times 7.", "42"),
        ("Such a thought ends with </think>\n", "", "Such a thought ends with </think>\n"),
        ("The tag </think> closes it.", "", "The tag </think> closes it."),
        ("From <think> to </think>\nit thinks.", "", "From <think> to </think>\nit thinks."),
        ("Write </think>\nor </think>\nthere.", "", "Write </think>\nor </think>\nthere."),
        ("[THINK]a[/THINK]42", "a", "42"),
        ("<|START_THINKING|>a<|END_THINKING|><|START_RESPONSE|>42<|END_RESPONSE|>", "a", "42"),
        ("<|begin_of_thought|>a<|end_of_thought|>\n<|begin_of_solution|>\n42<|end_of_solution|>", "a", "42"),
        ("<|channel>thought\na\n<channel|>42", "a", "42"),
        ("<longcat_think>a</longcat_think>42", "a", "42"),
        ("analysisSix times seven.assistantfinal42", "Six times seven.", "42"),
        ("<|START_RESPONSE|>42<|END_RESPONSE|>", "", "42"),
        ("42<|im_end|>\n</s>", "", "42"),
        ("<think>6 times 7</think>\n42<|eot_id|>", "6 times 7", "42"),
        ("Not <s>41</s>", "", "Not <s>41</s>"),
        ("It ends with `<|im_end|>`", "", "It ends with `<|im_end|>`"),
        (
            "<|channel|>analysis<|message|>hm<|end|><|channel|>final<|message|>42",
            "hm",
            "42",
        ),
        ("The tag `<think>` opens, and `</think>` closes.", "", "The tag `<think>` opens, and `</think>` closes."),
        ("```\n<think>a</think>\n```", "", "```\n<think>a</think>\n```"),
        ("42", "", "42"),
    ],
)
def test_thoughts_are_no_part_of_an_answer(text: str, thought: str, answer: str) -> None:
    """Thoughts are kept as reasoning; an answer's text about tags stays."""
    assert split_thoughts(text) == (thought, answer)


@pytest.mark.parametrize(
    "name",
    ["look", "functions.look", "default_api.look", "tool.look", "look()", " look ", '"look"', "Look",
     "functions.look:0", "look<|channel|>commentary", "to=functions.look", "\u200blook"],
)  # fmt: skip
def test_a_name_in_another_spelling_is_the_tool_that_it_means(name: str) -> None:
    """The call gets the tool's own name from here on, and the policy judges it by that name."""
    reply = read(ADAPTERS["chat_completions"], wire("chat_completions", "stop", called=((name, "{}"),)))
    assert reply.message is not None
    assert [call.name for call in reply.message.tool_calls] == ["look"]
    assert reply.problems == {}


@pytest.mark.parametrize("name", ["", "functions", "look_2", "lookpay"])
def test_an_unknown_or_ambiguous_tool_name_is_unchanged(name: str) -> None:
    """The LLM reads that there is no such tool."""
    assert intended_tool(name, ["look", "pay"]) == name
    assert intended_tool("Read_File", ["read_file", "readfile"]) == "Read_File"


@pytest.mark.parametrize(
    "message",
    [
        {"function_call": {"name": "look", "arguments": '{"q":1}'}},
        {"tool_calls": [{"name": "look", "arguments": '{"q":1}'}]},
        {"tool_calls": [{"id": "a", "type": "function", "function": "look", "arguments": {"q": 1}}]},
        {"tool_calls": {"function": {"name": "look", "arguments": '{"q":1}'}}},
        {"tool_calls": [{"function": {"name": "look", "parameters": {"q": 1}}}]},
        {"content": [{"type": "tool_use", "id": "a", "name": "look", "input": {"q": 1}}]},
    ],
)
def test_calls_in_older_and_flat_forms_are_calls(message: Wire) -> None:
    """The calls are moved to the fields for calls, and so are no text of the LLM."""
    reply = read(ADAPTERS["chat_completions"], {"choices": [{"finish_reason": "stop", "message": message}]})
    assert reply.message is not None
    assert [(call.name, call.arguments) for call in reply.message.tool_calls] == [("look", '{"q":1}')]


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "output_text", "text": "42"}],
        [{"text": "42"}],
        [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "42"}],
    ],
)
def test_text_in_the_parts_of_other_apis_is_text(content: Any) -> None:
    """Gateways pass such parts through."""
    reply = read(
        ADAPTERS["chat_completions"], {"choices": [{"finish_reason": "stop", "message": {"content": content}}]}
    )
    assert reply.message is not None
    assert (reply.message.text, reply.rejected) == ("42", "")


def test_a_run_blocked_by_its_replies_gives_the_reason() -> None:
    """The block has the reason for the last reply; below the feature level, it is as it was."""
    rejected = LLMReply(rejected="it is empty.")
    for features in (0, BLOCK_SAYS_WHY):
        thread = loaded_thread(
            agent_spec(limits=agent_spec().limits.model_copy(update={"max_rejected_replies": 1})), features=features
        )
        events = on_reply(thread.state, rejected, shown=1, at=NOW)
        assert isinstance(events[1], ReplyRejected)
        blocks = [event.message for event in events if isinstance(event, RunBlocked)]
        assert blocks == (["1 replies in a row could not be used. The last one: it is empty."] if features else [])
