"""Callers' policy conditions take no longer than the limit on loops over lists allows."""

import pytest

from holdfast.core.authority.conditions import ITEMS, MACROS, ConditionFailed, check_condition, holds, loops

THREE = "args.a.exists(x, args.a.exists(y, args.a.exists(z, false)))"


@pytest.mark.parametrize(
    "hidden",
    [
        f'args.a.exists(x, // "\n {THREE}) // "',
        f'r"\\" == "" || {THREE} || tool == "x"',
        f'br"\\" == b"" || {THREE} || tool == "x"',
        f'""" " """ == "" || {THREE} || tool == "x"',
        f"''' ' ''' == '' || {THREE} || tool == 'x'",
        f'"\\\\" == "" || {THREE} || tool == "x"',
        THREE.replace("exists(x", "exists // c\n(tool").replace("exists(y", "exists //\n(agent"),
    ],
)
def test_neither_comments_nor_texts_hide_a_loop(hidden: str) -> None:
    """Loops are counted by the language's grammar, whatever a preceding comment or string looks like."""
    with pytest.raises(ValueError, match=f"at most {MACROS} loops"):
        check_condition(hidden)


def test_a_loop_after_a_comment_is_bounded_by_its_items() -> None:
    """The limit on items holds for every counted loop; a string that looks like a loop is not counted."""
    commented = "args.a.exists // c\n(tool, tool == 1)"
    assert holds(commented, {"args": {"a": [1] * (ITEMS - 1)}})
    with pytest.raises(ConditionFailed, match=f"more than {ITEMS} items"):
        holds(commented, {"args": {"a": [1] * ITEMS}})
    assert loops('tool == ".exists(x, " && tool != "http://a"') == 0
