"""When a table that fails is tried again, and what may set it aside at all."""

from pathlib import Path

import pyarrow as pa
import pytest

from deltaworks.engine.suspended import (
    FIRST_SECONDS,
    LAST_SECONDS,
    Suspensions,
    first_line,
    is_tables_own,
    raised_in,
)
from deltaworks.errors import CommitLostError, ForeignCommitError, LakeError, LeaseLostError, NewerEntryError
from tests.unit.test_culprits import Divided


class Clock:
    """Seconds that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        """Read it."""
        return self.now


def test_pauses_between_tries_double_up_to_a_bound() -> None:
    """A fault that lasts costs little, one that passes is noticed soon."""
    clock = Clock()
    suspended = Suspensions(clock=clock)
    pauses = []
    for _ in range(9):
        suspended.failed("silver.notes", ValueError("no"))
        pauses.append(suspended.tables["silver.notes"].retry_at - clock.now)

    assert pauses[:3] == [FIRST_SECONDS, 2 * FIRST_SECONDS, 4 * FIRST_SECONDS]
    assert pauses[-1] == LAST_SECONDS


def raising(error: Exception) -> None:
    """Raise it, so that it has a trace."""
    raise error


def test_error_of_a_row_is_told_by_its_name(caplog: pytest.LogCaptureFixture) -> None:
    """Its text quotes values, and so may a trace: neither comes into a log, a heartbeat or the control store."""
    suspended = Suspensions(clock=Clock())

    for table, error in (("gold.days", Divided()), ("gold.days", Divided()), ("gold.months", ValueError("a bug"))):
        try:
            raising(error)
        except Exception as raised:  # noqa: BLE001  # as the flow does
            suspended.failed(table, raised)

    assert suspended.tables["gold.days"].error == first_line(Divided()) == "DIVIDE_BY_ZERO"
    assert caplog.text.count("DIVIDE_BY_ZERO") == 2
    assert "secret" not in caplog.text
    assert "ValueError: a bug" in caplog.text


def test_table_waits_until_its_time_and_is_forgotten_once_it_goes_on() -> None:
    """The next failure of a table that went on is a first one again."""
    clock = Clock()
    suspended = Suspensions(clock=clock)
    suspended.failed("silver.notes", LakeError("silver.notes.words", "is null", "Mend it"))
    waiting = suspended.waits("silver.notes")
    clock.now = FIRST_SECONDS
    due = not suspended.waits("silver.notes")
    told = str(suspended.error())
    suspended.recovered("silver.notes")

    assert waiting
    assert due
    assert "silver.notes: is suspended: silver.notes.words: is null. Mend it." in told
    assert "silver.notes" not in suspended
    assert suspended.error() is None


@pytest.mark.parametrize(
    ("error", "own"),
    [
        (LakeError("a", "b", "c"), True),
        (pa.ArrowInvalid("row"), True),
        (FileNotFoundError("part-0.parquet"), True),
        (ForeignCommitError("a", "b", "c"), False),
        (NewerEntryError("a", "b", "c"), False),
        (CommitLostError("a", "b", "c"), False),
        (LeaseLostError("a", "b", "c"), False),
        (OSError(28, "No space left on device"), False),
        (RuntimeError("of this program"), False),
    ],
)
def test_only_a_tables_own_fault_sets_it_aside(error: Exception, own: bool) -> None:
    """Who may not write, or has no disk, must stop."""
    assert is_tables_own(error, None) is own


def test_error_out_of_a_transform_is_its_tables_own(tmp_path: Path) -> None:
    """Whatever Python raises in the transform's file."""
    file = tmp_path / "transform.py"
    file.write_text("def transform():\n    return {}['page']\n")
    scope: dict[str, object] = {}
    exec(compile(file.read_text(), str(file), "exec"), scope)  # noqa: S102  # as a loaded transform is compiled
    transform = scope["transform"]
    assert callable(transform)
    with pytest.raises(KeyError) as raised:
        transform()

    assert is_tables_own(raised.value, file)
    assert not raised_in(raised.value, tmp_path / "other.py")
