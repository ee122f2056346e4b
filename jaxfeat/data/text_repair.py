"""How is text put right whose bytes were written or read in a wrong encoding?

Nothing else of it changes. The library `ftfy` is imported on first use.
"""

import re
from collections.abc import Iterator

SEGMENT = 100_000  # characters that are repaired at once: the time grows with the segment's length
_ESCAPED = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8, as surrogateescape gives them
_LOST_BYTE = re.compile("â€(?![^\x00-\x7f])")  # a closing quote whose third byte was left out


def decode(piece: bytes) -> tuple[str, bool]:
    """The text of bytes in UTF-8, stray ones read as windows-1252, and whether there were any."""
    text = piece.decode("utf-8", "surrogateescape")
    guess = lambda m: bytes([ord(m[0]) - 0xDC00]).decode("cp1252", "replace")
    sure = text if text.isascii() else _ESCAPED.sub(guess, text)
    return sure, sure != text


def repair(text: str) -> str:
    """The text with wrongly decoded characters put right, by lines and segments."""
    if text.isascii():
        return text
    import ftfy

    # Without restore_byte_a0: it would take the space after a damaged quote for a part of it.
    config = ftfy.TextFixerConfig(restore_byte_a0=False)

    def mend(part: str) -> str:
        lost = part if part.isascii() else _LOST_BYTE.sub("â€\x9d", part)
        return lost if lost.isascii() else ftfy.fix_encoding(lost, config)

    return "\n".join("".join(map(mend, _segments(line))) for line in text.split("\n"))


def _segments(line: str) -> Iterator[str]:
    """The line in parts of at most `SEGMENT` characters, cut at spaces where there are any."""
    at = 0
    while len(line) - at > SEGMENT:
        space = line.rfind(" ", at, at + SEGMENT)
        end = space + 1 if space > at else at + SEGMENT
        yield line[at:end]
        at = end
    yield line[at:]
