"""A policy as a file has it: the policy's models, with nothing unknown in them, and with what is easier to write."""

from difflib import get_close_matches
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, model_validator

from holdfast.authority.conditions import check_condition
from holdfast.authority.policy import Approver, Escalation, Gateway, Policy, Rule, Seconds, Terms
from holdfast.runtime.config.durations import read_seconds

CONDITION_CHARS = 4_000
"""Length of a condition. A much longer one can exhaust the stack of what compiles it."""

VERDICTS = ("allow", "ask", "deny")


def _seconds(value: Any) -> Any:
    return read_seconds(value) if isinstance(value, str) else value


def _condition(text: str) -> str:
    if len(text) > CONDITION_CHARS:
        raise ValueError(f"it is over {CONDITION_CHARS:,} characters long")
    if text:
        check_condition(text)
    return text


_Span = Annotated[Seconds, BeforeValidator(_seconds)]
_When = Annotated[str, AfterValidator(_condition)]


class EscalationForm(Escalation, extra="forbid"):
    """Who is asked later."""

    after: _Span


class TermsForm(Terms, extra="forbid"):
    """How a request is decided."""

    expires_after: _Span | None = None
    remind_every: _Span | None = None
    escalate: tuple[EscalationForm, ...] = ()


class ApproverForm(Approver, extra="forbid"):
    """Somebody who may decide."""


class GatewayForm(Gateway, extra="forbid"):
    """A service that vouches for people."""


class RuleForm(Rule, extra="forbid"):
    """A rule, which may begin with its verdict."""

    when: _When = ""
    terms: TermsForm | None = None

    @model_validator(mode="before")
    @classmethod
    def _written_out(cls, given: Any) -> Any:
        """`{"ask": "pay"}` as `{"verdict": "ask", "tool": "pay"}`."""
        if not isinstance(given, dict):
            return given
        said = [verdict for verdict in VERDICTS if verdict in given]
        if not said and "verdict" in given:
            return given
        if not said:
            raise ValueError(f"a rule says allow, ask or deny, as in `- ask: pay`{meant(list(given), VERDICTS)}")
        if len(said) > 1 or "verdict" in given or "tool" in given:
            both = [*said, *(name for name in ("verdict", "tool") if name in given)]
            raise ValueError(f"it says {' and '.join(both)}; one verdict with one tool pattern makes a rule")
        tool = given[said[0]]
        if tool is None:
            raise ValueError(f'{said[0]}: no tool is named; "*" stands for all of them')
        return {**{name: value for name, value in given.items() if name != said[0]}, "verdict": said[0], "tool": tool}


class PolicyForm(Policy, extra="forbid"):
    """The whole file."""

    rules: tuple[RuleForm, ...] = ()
    approvers: tuple[ApproverForm, ...] = ()
    gateways: tuple[GatewayForm, ...] = ()
    terms: TermsForm = TermsForm()

    @model_validator(mode="after")
    def _of_people_who_exist(self) -> Self:
        return self  # `policies` tells of all that is wrong, each in its place


def meant(given: list[str], known: list[str] | tuple[str, ...]) -> str:
    """What to say of unknown names: `; did you mean …?`, where something like it is known."""
    close = [each for name in given for each in get_close_matches(name, known, n=1)]
    if close:
        return f"; did you mean {close[0]}?"
    return f"; there are {', '.join(dict.fromkeys(known))}" if known and len(given) == 1 and len(known) < 15 else ""
