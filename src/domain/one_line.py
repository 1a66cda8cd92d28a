"""Text that stays on its line, whatever is in it."""


def printable(text: str) -> str:
    """Each character that is not printable as its escape."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def cut(text: str, max_chars: int) -> str:
    """At most `max_chars` of `text`, the last an ellipsis where it was longer; redact first, or half a secret stays."""
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"


def one_line(text: str) -> str:
    """`text` with its white space folded and its control characters (a terminal obeys them) as escapes."""
    return printable(" ".join(text.split()))
