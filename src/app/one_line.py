"""Text that stays on its line, whatever is in it."""


def printable(text: str) -> str:
    """Each character that is not printable as its escape."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
