"""Worker identities: text that says which process it is, and is read by nobody else's rules."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.runtime.takeover.worker_identity import WorkerIdentity, host_in_identity, parse_identity

identities = st.builds(
    WorkerIdentity,
    host=st.text(max_size=80).map(host_in_identity),
    place=st.integers(0, 2**64 - 1).map("{:016x}".format),
    pid=st.integers(1, 2**32 - 1),
    started=st.integers(0, 10**20 - 1),
)


@given(identities)
def test_an_identity_is_read_as_it_was_written(identity: WorkerIdentity) -> None:
    """Whatever the machine is called, the text names the same process again."""
    assert parse_identity(str(identity)) == identity


@given(st.text() | identities.flatmap(lambda identity: st.text(max_size=3).map(lambda more: f"{identity}{more}")))
def test_what_reads_is_exactly_what_was_written(text: str) -> None:
    """No second spelling is taken for an identity: no sign, no leading zero, no space, no digits of other scripts."""
    identity = parse_identity(text)
    assert identity is None or str(identity) == text


def test_a_machine_is_named_as_short_as_people_need_it() -> None:
    """Every step's history repeats the name: its domain goes, and the beginning of one that is long."""
    assert host_in_identity("build-7") == "build-7"
    assert host_in_identity("ip-10-0-12-34.eu-central-1.compute.internal") == "ip-10-0-12-34"
    assert host_in_identity("holdfast-worker-7d9f8b6c5-x2x4z") == "t-worker-7d9f8b6c5-x2x4z"
    assert host_in_identity("Büro_1") == "B-ro-1"
    assert host_in_identity("") == host_in_identity(".local") == "-"


def test_the_identities_of_others_are_nobodys() -> None:
    """Temporal's own form, other programs', and near misses do not parse."""
    ours = "hf:build-7:3f1c9a2b7d5e8046:4711:8834112"
    assert parse_identity(ours) is not None
    for other in (
        "",
        "4711@build-7",
        ours.upper(),
        f" {ours}",
        f"{ours}\n",
        ours.replace(":4711:", ":04711:"),
        ours.replace(":4711:", ":0:"),
        ours.replace(":4711:", ":-4711:"),
        ours.replace("4711", "\u0664\u0667\u0661\u0661"),
        ours.replace("3f1c", "3f1"),
        ours.replace("build-7", "build/7"),
        ours.removesuffix(":8834112"),
    ):
        assert parse_identity(other) is None, other
