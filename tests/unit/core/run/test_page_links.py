"""The details in Temporal's Web UI lead to the request on the page, if the worker named a gateway."""

from holdfast.core.log.events import AgentLoaded
from holdfast.core.run.state.features import PAGE_LINKS
from holdfast.core.run.views.web_ui import current_details
from tests.support.runs import Thread, calls

GATEWAY = "https://gateway.example/agents"


def loaded_by(page: str, *, features: int = PAGE_LINKS, name: str = "t") -> Thread:
    """Return a thread whose worker gave that address, and whose agent asks to pay."""
    thread = Thread(name=name)
    thread.page = page
    thread.load(features)
    thread.reply(calls("pay"))
    return thread


def test_each_request_and_the_run_have_a_link_to_the_page() -> None:
    """The ids in the address are percent-encoded, and the link of a request names it."""
    page = current_details(loaded_by(GATEWAY, name="pay/1 (a)").state)
    assert f"[This run on the page](<{GATEWAY}/page/runs/pay%2F1%20%28a%29>)" in page
    assert f"[Decide on the page](<{GATEWAY}/page/requests/pay%2F1%20%28a%29/1>)" in page


def test_without_an_address_or_below_the_level_nothing_is_recorded_or_linked() -> None:
    """A worker without a gateway gives no link, and a run of an older level records no address."""
    for thread in (loaded_by(""), loaded_by(GATEWAY, features=PAGE_LINKS - 1)):
        assert "on the page" not in current_details(thread.state)
        (event,) = [each for each in thread.log if isinstance(each, AgentLoaded)]
        assert "page" not in event.model_dump(exclude_defaults=True)


def test_the_next_load_records_the_address_that_its_worker_has() -> None:
    """A thread that is continued under a worker with another address, or with none, has that one."""
    thread = loaded_by(GATEWAY)
    for page in ("https://new.example", ""):
        thread.cancel()
        thread.page = page
        thread.archive(features=PAGE_LINKS)
        thread.reopen()
        thread.load_thread()
        thread.load(PAGE_LINKS)
        thread.reply(calls("pay"))
        assert thread.state.page == page
        assert (f"<{page}/page/" in current_details(thread.state)) == bool(page)
        assert GATEWAY not in current_details(thread.state)
