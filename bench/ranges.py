"""Lists as options write them: ``64,256`` and ``1-5``."""

from __future__ import annotations


def numbers(text: str) -> tuple[int, ...]:
    """Read numbers and ranges, ends included.

    Examples
    --------
    >>> numbers("1-3,7")
    (1, 2, 3, 7)
    """
    out: list[int] = []
    for part in words(text):
        low, _, high = part.partition("-")
        out.extend(range(int(low), int(high or low) + 1))
    return tuple(out)


def words(text: str) -> tuple[str, ...]:
    """Read words separated by commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip())
