"""Why a row, a document or a value is refused: a fixed text that never quotes data."""


class Refusal(Exception):  # noqa: N818  # a verdict on data, not an error of the program
    """What does not fit; `code` is one of the fixed texts of this package, never a value or an undeclared name."""

    def __init__(self, code: str) -> None:
        """Keep the code."""
        super().__init__(code)
        self.code = code
