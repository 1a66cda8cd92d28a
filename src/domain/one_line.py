"""Text that stays on its line, whatever is in it."""


def printable(text: str) -> str:
    """Each character that is not printable as its escape."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def one_line(text: str) -> str:
    """`text` with its white space folded and its control characters (a terminal obeys them) as escapes."""
    return printable(" ".join(text.split()))
