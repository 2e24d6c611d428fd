"""Previews of tool calls: `preview_call` computes them before people are asked, and an approved call checks its own.

1. A tool's preview function has no effect. It is a user's code all the same: it may raise, hang or crash its worker,
   and every such end is an answer, with which the request opens.
2. An approved call whose preview has a base runs only if the preview has the same base when the call is about to run.
"""

from collections.abc import Mapping
from typing import Any

from temporalio import activity

from holdfast.activities.calling_run import calling_thread
from holdfast.activities.heartbeats import heartbeats
from holdfast.activities.safe_logs import SafeLogger
from holdfast.activities.tool_calls.context_updates import CallContext
from holdfast.activities.tool_calls.tool_attempt import Attempt, tool_context
from holdfast.activities.tool_calls.tool_functions import TimedOut, call_function, raise_if_stopped
from holdfast.activities.tool_calls.tool_threads import NoThread
from holdfast.core.agents.catalog import Catalog
from holdfast.core.authority.previews import BASE_CHARS, PREVIEW_CHARS, PROBLEM_CHARS, CallPreview
from holdfast.core.base.text import one_line
from holdfast.core.run.contracts.table import PREVIEW_SECONDS
from holdfast.core.run.contracts.tool_calls import PreviewedCall, PreviewRequest
from holdfast.core.stores import ArtifactStore
from holdfast.core.tools.arguments import ArgumentsInvalid
from holdfast.core.tools.decorator import NO_RESOURCES, Preview, bind
from holdfast.core.tools.results import error_text, recordable_text
from holdfast.core.tools.secrets import NO_SECRETS, Secrets

MOST_CHARS = 1_000_000
"""Maximum length of the text that a preview function returns."""

MOST_ATTEMPTS = 3
"""How often the activity is attempted: a preview that crashes its workers must not do so for ever."""

log = SafeLogger(__name__)


class NoPreview(Exception):
    """A preview function returned no preview; the message says why."""


class Previews:
    """Computes previews with the tools of the worker's catalog.

    Args:
        catalog: The agents and tools of this worker.
        artifacts: Stores previews that are too long for a request.
        secrets: Passed to the functions whose tools declare them, and redacted from every preview.
        resources: The catalog's resources by type.
    """

    def __init__(
        self,
        catalog: Catalog,
        artifacts: ArtifactStore,
        secrets: Secrets = NO_SECRETS,
        resources: Mapping[Any, Any] = NO_RESOURCES,
    ) -> None:
        self._catalog = catalog
        self._artifacts = artifacts
        self._secrets = secrets
        self._resources = resources

    @activity.defn
    async def preview_call(self, request: PreviewRequest) -> PreviewedCall:
        """See `holdfast.core.run.contracts.table.PREVIEW_CALL`."""
        if activity.info().attempt > MOST_ATTEMPTS:
            return _without(f"{MOST_ATTEMPTS} attempts to compute it did not end")
        async with heartbeats():
            try:
                preview = await preview_of(self._attempt(request))
            except NoPreview as error:
                log.info("no_preview", thread=calling_thread(), tool=request.call.name, reason=str(error))
                return _without(str(error))
            return PreviewedCall(preview=await self._recorded(preview))

    def _attempt(self, request: PreviewRequest) -> Attempt:
        """Return the call, of which only the preview is computed.

        Raises:
            NoPreview: This worker has no such tool, or it rejects the arguments.
        """
        tool = self._catalog.tools.get(request.call.name)
        if tool is None:
            raise NoPreview(f"this worker's catalog has no tool {request.call.name!r}")
        try:
            arguments = tool.read(request.call.arguments)
        except ArgumentsInvalid as error:
            raise NoPreview(self._secrets.redact(f"the arguments do not fit: {error}")) from None
        context = tool_context(request, tool, self._secrets)
        return Attempt(tool, arguments.values, context, self._resources, CallContext(request.context), self._secrets)

    async def _recorded(self, preview: Preview) -> CallPreview:
        if len(preview.text) <= PREVIEW_CHARS:
            return CallPreview(text=preview.text, base=preview.base)
        address = await self._artifacts.put(preview.text.encode(), thread=calling_thread())
        text = preview.text[:PREVIEW_CHARS]
        return CallPreview(text=text, base=preview.base, artifact=address, size=len(preview.text))


def _without(problem: str) -> PreviewedCall:
    return PreviewedCall(preview=CallPreview(problem=one_line(problem, PROBLEM_CHARS)))


async def preview_of(attempt: Attempt) -> Preview:
    """Compute the preview of a call, without secrets, and fit to be recorded.

    Raises:
        NoPreview: There is none; the message says why.
    """
    tool, secrets = attempt.tool, attempt.secrets
    if tool.preview is None:
        raise NoPreview(f"this worker's {tool.spec.name} has no preview")
    limit = min(tool.spec.timeout, PREVIEW_SECONDS)
    try:
        bound = bind(tool.preview, attempt.arguments, attempt.context, attempt.resources, attempt.run_context.values)
        value = await call_function(tool.preview, bound, limit, tool=tool.spec.name, key=attempt.context.key)
    except TimedOut:
        raise NoPreview(f"it took longer than {limit:g} s") from None
    except NoThread as error:
        raise NoPreview(str(error)) from None
    except BaseException as error:  # also sys.exit, which would end the worker
        raise_if_stopped(error)
        raise NoPreview(secrets.redact(error_text(error))) from None
    preview = Preview(value) if isinstance(value, str) else value
    if not isinstance(preview, Preview) or not isinstance(preview.text, str) or not isinstance(preview.base, str):
        raise NoPreview(f"its function returned a {type(value).__name__}; return text, or Preview(text, base=…)")
    if len(preview.text) > MOST_CHARS or len(preview.base) > BASE_CHARS:
        lengths = f"{len(preview.text):,} characters, and its base {len(preview.base):,}"
        raise NoPreview(f"it has {lengths}; at most {MOST_CHARS:,} and {BASE_CHARS} are possible")
    text, base = (recordable_text(secrets.redact(each)) for each in (preview.text, preview.base))
    return Preview(text, base=base)


async def changed_since(attempt: Attempt, base: str) -> str:
    """Return why an approved call must not run: the state that its preview showed has changed. Empty if it has not.

    Args:
        attempt: The call.
        base: The base of the preview by which it was approved.
    """
    name = attempt.tool.spec.name
    again = f"Look again, and call {name} again if it is still right: people then see what it would do now."
    try:
        preview = await preview_of(attempt)
    except NoPreview as error:
        return f"Not called: what {name} would do cannot be computed again, as its approval requires: {error}. {again}"
    if preview.base == base:
        return ""
    return f"Not called: what {name} would change has changed since it was shown to those who approved it. {again}"
