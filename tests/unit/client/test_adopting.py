"""Many runs adopt a policy: ten at a time, and only while workers answer."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.client import adopting
from holdfast.client.adopting import AT_ONCE, Adoption, adopt_where_waiting
from holdfast.client.sending import SENT, UpdateResult
from holdfast.errors import NoWorker, ThreadNotFound

WAITING = [f"run-{number:02}" for number in range(25)]


async def adopt(monkeypatch: pytest.MonkeyPatch, answer: Callable[[str], UpdateResult]) -> tuple[Adoption, list[str]]:
    """Have all waiting runs adopt a policy; return what became of it, and the threads that were asked."""
    asked: list[str] = []

    async def search(*_: Any) -> list[Any]:
        return [SimpleNamespace(id=thread) for thread in WAITING]

    async def ask(_: Any, thread: str, *_more: Any, **_others: Any) -> UpdateResult:
        asked.append(thread)
        return answer(thread)

    monkeypatch.setattr(adopting, "search", search)
    monkeypatch.setattr(adopting, "adopt_policy", ask)
    monkeypatch.setattr(adopting, "LAG_SECONDS", 0.0)
    return await adopt_where_waiting(cast(Any, None), "0" * 64, by="alice"), asked


async def test_all_are_asked_while_workers_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """One answer in ten suffices to go on, and each run is asked once, although they are searched twice."""

    def answer(thread: str) -> UpdateResult:
        return UpdateResult("accepted" if thread.endswith("5") else SENT)

    adoption, asked = await adopt(monkeypatch, answer)
    assert (asked, adoption.left) == (WAITING, ())


async def test_without_a_worker_the_rest_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first worker that starts then does not wake them all at once, whether the first ones were sent or failed."""

    def fails(thread: str) -> UpdateResult:
        raise NoWorker(thread)

    for answer in (lambda _: UpdateResult(SENT), fails):
        adoption, asked = await adopt(monkeypatch, answer)
        assert (asked, adoption.left) == (WAITING[:AT_ONCE], tuple(WAITING[AT_ONCE:]))


async def test_runs_that_have_ended_say_nothing_about_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the first ten have ended meanwhile, the others are asked."""

    def answer(thread: str) -> UpdateResult:
        if thread < WAITING[AT_ONCE]:
            raise ThreadNotFound(thread)
        return UpdateResult("accepted")

    adoption, _ = await adopt(monkeypatch, answer)
    assert (set(adoption.answers), adoption.left) == (set(WAITING[AT_ONCE:]), ())
