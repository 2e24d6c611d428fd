"""What the comparison of streams counts: text shown twice, tokens lost, and delays."""

from itertools import accumulate

from bench.peers.shown import RECORDED, RESTARTED, TEXT, Piece, delay_after, screen_of


def token(step: int, number: int, sent: float) -> str:
    """Return a token as the model server sends it."""
    return f"{step}.{number}@{sent:.6f} "


HALF = token(1, 0, 1.0) + token(1, 1, 1.1)
AGAIN = token(1, 0, 5.0) + token(1, 1, 5.1) + token(1, 2, 5.2)


def test_a_retry_that_nobody_announces_is_text_shown_twice() -> None:
    """The reader had two tokens of the killed attempt, and gets them again with another time."""
    screen = screen_of([Piece(TEXT, HALF), Piece(TEXT, AGAIN)])
    assert screen.twice == len(HALF)
    assert (screen.lost(0, 3), screen.restarts) == (0, 0)


def test_an_announced_retry_replaces_what_was_shown() -> None:
    """The stream says that another attempt begins, so nothing is on the screen twice."""
    screen = screen_of([Piece(TEXT, HALF), Piece(RESTARTED), Piece(TEXT, AGAIN)])
    assert (screen.twice, screen.restarts, screen.kept + screen.draft) == (0, 1, AGAIN)


def test_a_recorded_reply_replaces_its_pieces_and_brings_those_that_did_not_come() -> None:
    """A reader that has seen a part of a reply has all of it, once, when it is recorded."""
    screen = screen_of([Piece(TEXT, HALF), Piece(RECORDED, AGAIN), Piece(TEXT, token(2, 0, 6.0))])
    assert (screen.twice, screen.tokens) == (0, [(1, 0), (1, 1), (1, 2), (2, 0)])


def test_a_recorded_reply_that_comes_twice_is_text_shown_twice() -> None:
    """What the log repeats counts as well."""
    assert screen_of([Piece(RECORDED, HALF), Piece(RECORDED, HALF)]).twice == len(HALF)


def test_tokens_that_never_come_are_lost() -> None:
    """Of a run of one step, there are the replies 1 and 0, the last one."""
    assert screen_of([Piece(TEXT, HALF)]).lost(1, 3) == 4


def test_a_first_token_counts_from_its_first_sending_to_its_last_character() -> None:
    """It may come in several pieces; a later attempt is not a first token."""
    text = token(1, 0, 1.0)
    pieces = [Piece(TEXT, text[:5], 1.02), Piece(TEXT, text[5:], 1.03), Piece(TEXT, AGAIN, 9.0)]
    assert {step: round(ms) for step, ms in screen_of(pieces).first.items()} == {1: 30}


def test_the_stream_continues_with_the_first_token_that_was_sent_after_the_kill() -> None:
    """Tokens that were on their way at the kill do not count."""
    times = list(accumulate([2.0, 0.1, 4.0]))
    pieces = [Piece(TEXT, text, at) for text, at in zip([HALF, token(1, 2, 1.2), AGAIN], times, strict=True)]
    assert round(delay_after(pieces, 1.5), 3) == round(times[2] - 1.5, 3)
    assert delay_after(pieces, 7.0) == 0.0
