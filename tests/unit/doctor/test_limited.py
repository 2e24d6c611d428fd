"""A check that fails or hangs becomes a line of the report, and no other check waits for it."""

import asyncio
import threading

from holdfast.doctor.check import Check
from holdfast.doctor.limited import Limited
from holdfast.errors import SettingsError

FINE = Check("fine", "ok", "it is there")


async def test_a_hanging_check_is_named_and_not_begun_twice() -> None:
    """The others are made meanwhile; while its thread lasts, asking again starts no second one."""
    release, begun = threading.Event(), threading.Semaphore(0)
    limited = Limited(seconds=0.05)

    def hang() -> Check:
        begun.release()
        release.wait()
        return FINE

    try:
        hung, fine = await asyncio.gather(
            limited.in_thread("disk", hang), Limited().in_thread("fine", lambda: [FINE, FINE])
        )
        assert fine == [FINE, FINE]
        assert [(each.name, each.status) for each in hung] == [("disk", "missing")]
        assert "did not end within" in hung[0].detail
        (again,) = await limited.in_thread("disk", hang)
        assert (again.status, "hangs" in again.detail) == ("missing", True)
        assert begun.acquire(blocking=False)
        assert not begun.acquire(blocking=False)
    finally:
        release.set()


async def test_a_failing_check_says_no_more_than_it_may() -> None:
    """Errors of ours are shown; of any other exception its type alone, because its text could hold a secret."""
    limited = Limited()

    def refuse() -> None:
        raise SettingsError("HOLDFAST_ANCHORS is wrong")

    def fail() -> None:
        raise RuntimeError("password hunter2")

    assert await limited.in_thread("ours", refuse) == [Check("ours", "missing", "HOLDFAST_ANCHORS is wrong")]
    (other,) = await limited.in_thread("other", fail)
    assert (other.status, "RuntimeError" in other.detail, "hunter2" in str(other)) == ("missing", True, False)
    assert await limited.in_thread("nothing", lambda: None) == []
