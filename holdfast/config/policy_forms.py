"""The policy's models in the notation of files: unknown fields are errors, and there are shorter notations."""

import re
from difflib import get_close_matches
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from holdfast.core.authority.conditions import check_condition
from holdfast.core.authority.hours import Hours
from holdfast.core.authority.policy import (
    Approver,
    Escalation,
    Extensions,
    Gateway,
    Policy,
    Rule,
    Seconds,
    Signer,
    Terms,
)
from holdfast.core.base.durations import read_seconds
from holdfast.core.budget.budget import Amounts

CONDITION_CHARS = 4_000
"""The longest condition. A much longer one can exhaust the compiler's stack."""

VERDICTS = ("allow", "ask", "deny", "later")


_COMPOUND = re.compile(r"(\d{1,6})h\s*(\d{1,6})m?", re.ASCII)


def _seconds(value: Any) -> Any:
    if isinstance(value, str) and (parts := _COMPOUND.fullmatch(value.strip())):
        raise ValueError(f"{value!r} has two units; write one: {60 * int(parts[1]) + int(parts[2])}m")
    return read_seconds(value) if isinstance(value, str) else _number(value)


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("it has to be a number; YAML reads yes, no, on and off as true and false")
    return value


def _condition(text: str) -> str:
    if len(text) > CONDITION_CHARS:
        raise ValueError(f"the condition is longer than {CONDITION_CHARS:,} characters")
    if text:
        check_condition(text)
    return text


_Whole = BeforeValidator(_number)
_Span = Annotated[Seconds, BeforeValidator(_seconds)]
_When = Annotated[str, AfterValidator(_condition)]


class EscalationForm(Escalation, extra="forbid"):
    """Further approvers, asked if nobody has decided in time."""

    after: _Span


class TermsForm(Terms, extra="forbid"):
    """How a request is decided."""

    quorum: Annotated[int, _Whole] = Field(default=1, ge=1, le=20)
    expires_after: _Span | None = None
    remind_every: _Span | None = None
    escalate: tuple[EscalationForm, ...] = ()


class ApproverForm(Approver, extra="forbid"):
    """A person who may decide."""


class GatewayForm(Gateway, extra="forbid"):
    """A service that vouches for approvers."""


class SignerForm(Signer, extra="forbid"):
    """A person or service that vouches for portable files."""


class HoursForm(Hours, extra="forbid"):
    """The hours of a `later` rule."""


class RuleForm(Rule, extra="forbid"):
    """A rule; it may begin with its verdict."""

    depth: Annotated[int, _Whole] = Field(default=0, ge=0)
    when: _When = ""
    terms: TermsForm | None = None
    hours: HoursForm | None = None

    @model_validator(mode="before")
    @classmethod
    def _expand_verdict(cls, rule: Any) -> Any:
        """Expand `{"ask": "pay"}` to `{"verdict": "ask", "tool": "pay"}`."""
        if not isinstance(rule, dict):
            return rule
        verdicts = [verdict for verdict in VERDICTS if verdict in rule]
        if not verdicts and "verdict" in rule:
            return rule
        if not verdicts:
            near = suggestion(list(rule), VERDICTS)
            raise ValueError(f"a rule needs allow, ask, deny or later, as in `- ask: pay`{near}")
        if len(verdicts) > 1 or "verdict" in rule or "tool" in rule:
            both = [*verdicts, *(name for name in ("verdict", "tool") if name in rule)]
            raise ValueError(f"the rule has {' and '.join(both)}; give it one verdict with one tool pattern")
        verdict = verdicts[0]
        if rule[verdict] is None:
            raise ValueError(f'{verdict}: no tool is named; use "*" for all tools')
        rest = {name: value for name, value in rule.items() if name != verdict}
        return {**rest, "verdict": verdict, "tool": rule[verdict]}


class AmountsForm(Amounts, extra="forbid"):
    """The most that one extension may give."""


class ExtensionsForm(Extensions, extra="forbid"):
    """The people who may extend budgets."""

    most: AmountsForm | None = None


class PolicyForm(Policy, extra="forbid"):
    """The whole file."""

    rules: tuple[RuleForm, ...] = ()
    approvers: tuple[ApproverForm, ...] = ()
    gateways: tuple[GatewayForm, ...] = ()
    signers: tuple[SignerForm, ...] = ()
    terms: TermsForm = TermsForm()
    extensions: ExtensionsForm = ExtensionsForm()

    @model_validator(mode="after")
    def _of_people_who_exist(self) -> Self:
        return self  # `policy_file` reports all such problems at once, with their positions


def suggestion(names: list[str], known: list[str] | tuple[str, ...]) -> str:
    """Suggest known names in place of unknown ones: `; did you mean …?`, or a list of all if it is short."""
    close = [each for name in names for each in get_close_matches(name, known, n=1)]
    if close:
        return f"; did you mean {close[0]}?"
    return f"; known are {', '.join(dict.fromkeys(known))}" if known and len(names) == 1 and len(known) < 15 else ""
