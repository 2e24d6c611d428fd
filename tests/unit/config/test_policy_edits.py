"""Keys of approvers are added to and removed from policy files, whose other text stays as it is."""

from pathlib import Path

import pytest

from holdfast.config.policy_edits import add_key, remove_key
from holdfast.config.policy_file import load_policy
from holdfast.core.authority.signatures import fingerprint, public_key
from holdfast.errors import SettingsError
from tests.support.people import KEYS

ALICE, BOB, CAROL = (public_key(KEYS[name]) for name in ("alice", "bob", "carol"))

FORMS = {
    "a block": "# who\napprovers:\n  - name: alice   # head\n    roles: [x]\n\n  - name: bob\n# end\nrules: []\n",
    "a flow": "approvers: [{name: alice}, {name: bob}]  # two\n",
    "lines of flow": "approvers:\n- {name: Alice, keys: []} # none yet\n- {name: bob}\n",
    "JSON": '{"approvers": [{"name": "alice", "roles": ["head"]}, {"name": "bob"}], "signatures": "optional"}',
    "without a last line feed": "approvers:\n  - name: bob\n  - name: alice",
    "Windows": "approvers:\r\n  - name: alice\r\n  - name: bob\r\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_keys_come_and_go_in_every_form(form: str, tmp_path: Path) -> None:
    """Two keys are added and removed again; each line that was there before is still there."""
    file = tmp_path / "policy.yaml"
    file.write_bytes(FORMS[form].encode())
    file.chmod(0o640)
    before = load_policy(file)
    for key in (ALICE, BOB):
        add_key(file, "alice", key)
    person = load_policy(file).approver("alice")
    assert person is not None
    assert person.keys == (ALICE, BOB)
    for comment in ("# who", "# head", "# end", "# two", "# none yet"):
        assert (comment in file.read_text()) == (comment in FORMS[form])
    for key in (ALICE, BOB):
        remove_key(file, "alice", key)
    assert load_policy(file) == before
    assert file.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [file]


def test_lists_of_keys_grow_and_shrink(tmp_path: Path) -> None:
    """A list of keys in lines, and one in brackets, keep their form; the last key of a list leaves it empty."""
    file = tmp_path / "policy.yaml"
    for start in (
        f"approvers:\n  - name: alice\n    keys:\n      - {ALICE} # laptop\n    roles: [x]\n",
        f'approvers: [{{name: alice, keys: ["{ALICE}"], roles: [x]}}]\n',
    ):
        for first, then in ((ALICE, BOB), (BOB, ALICE)):
            file.write_text(start)
            add_key(file, "alice", BOB)
            remove_key(file, "alice", first)
            person = load_policy(file).approver("alice")
            assert person is not None
            assert (person.keys, person.roles) == ((then,), ("x",))


def test_a_new_person_is_added_only_on_request(tmp_path: Path) -> None:
    """A key of a person whom the policy does not name is refused, unless the person is to be added."""
    file = tmp_path / "policy.yaml"
    file.write_text("approvers:\n  - name: alice\nrules:\n  - ask: pay\n")
    with pytest.raises(SettingsError, match="names no approver carol"):
        add_key(file, "carol", CAROL)
    add_key(file, "carol", CAROL, new=True)
    assert [each.name for each in load_policy(file).approvers] == ["alice", "carol"]
    file.write_text("rules:\n  - ask: pay\n")
    with pytest.raises(SettingsError, match="anybody may decide"):
        add_key(file, "carol", CAROL, new=True)


def test_what_cannot_be_edited_stays(tmp_path: Path) -> None:
    """A repeated key, the last key under required signatures, and a file with anchors are refused, and not written."""
    file = tmp_path / "policy.yaml"
    required = f"signatures: required\napprovers: [{{name: alice, keys: ['{ALICE}']}}]\n"
    shared = "approvers:\n  - name: alice\n    keys: &none []\n  - name: bob\n    keys: *none\n"
    file.write_text(required)
    with pytest.raises(SettingsError, match="already, as one of alice"):
        add_key(file, "alice", ALICE)
    with pytest.raises(SettingsError, match="no approver has a key"):
        remove_key(file, "alice", ALICE)
    assert file.read_text() == required
    file.write_text(shared)
    with pytest.raises(SettingsError, match="by hand"):
        add_key(file, "bob", BOB)
    assert file.read_text() == shared


def test_a_fingerprint_can_be_read_aloud() -> None:
    """A fingerprint is five groups of four digits, and each key has its own."""
    assert len({fingerprint(key) for key in (ALICE, BOB, CAROL)}) == 3
    assert [len(group) for group in fingerprint(ALICE).split(" ")] == [4] * 5
