"""Worker identities: text that names a process exactly."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.worker.takeover.worker_identity import WorkerIdentity, host_in_identity, parse_identity

identities = st.builds(
    WorkerIdentity,
    host=st.text(max_size=80).map(host_in_identity),
    scope=st.integers(0, 2**64 - 1).map("{:016x}".format),
    pid=st.integers(1, 2**32 - 1),
    started=st.integers(0, 10**20 - 1),
)


@given(identities)
def test_an_identity_is_read_as_it_was_written(identity: WorkerIdentity) -> None:
    """For any host name, the text names the same process again."""
    assert parse_identity(str(identity)) == identity


@given(st.text() | identities.flatmap(lambda identity: st.text(max_size=3).map(lambda more: f"{identity}{more}")))
def test_an_identity_has_one_spelling(text: str) -> None:
    """A sign, a leading zero, a space or digits of other scripts are rejected."""
    identity = parse_identity(text)
    assert identity is None or str(identity) == text


def test_the_host_name_is_shortened() -> None:
    """Every step's history repeats the name, so its domain and the beginning of a long name are dropped."""
    assert host_in_identity("build-7") == "build-7"
    assert host_in_identity("ip-10-0-12-34.eu-central-1.compute.internal") == "ip-10-0-12-34"
    assert host_in_identity("holdfast-worker-7d9f8b6c5-x2x4z") == "t-worker-7d9f8b6c5-x2x4z"
    assert host_in_identity("Büro_1") == "B-ro-1"
    assert host_in_identity("") == host_in_identity(".local") == "-"


def test_other_programs_identities_are_not_parsed() -> None:
    """Temporal's own form, other programs' forms and near misses do not parse."""
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
