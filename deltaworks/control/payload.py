"""JSON as the control store keeps it: bounded, and free of what Postgres refuses."""

import json
import math
from collections.abc import Mapping, Sequence

from psycopg.types.json import Jsonb

from deltaworks.errors import ControlError

BYTES_MAX = 1_000_000  # a progress or a result is a summary; rows belong into the lake


def payload(value: Mapping[str, object]) -> Jsonb:
    """Make a JSON object storable; raises ControlError if it is no JSON or longer than BYTES_MAX.

    Postgres' jsonb holds neither NUL, lone surrogates nor NaN. A heartbeat must not fail because the row that
    the driver reports on has one, so texts get U+FFFD in their place and numbers that are not finite become null.
    """
    try:
        dumped = json.dumps(_storable(value), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ControlError(
            "control store", f"not a JSON object ({error})", "Give texts, numbers, lists, mappings"
        ) from None
    if len(dumped) > BYTES_MAX:
        raise ControlError(
            "control store", f"a JSON object of {len(dumped):,} bytes, at most {BYTES_MAX:,} are kept", "Give a summary"
        )
    return Jsonb(value, dumps=lambda _: dumped)


def storable_text(text: str) -> str:
    """Return the text with what Postgres cannot hold (NUL, lone surrogates) replaced by U+FFFD or `?`."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def _storable(value: object) -> object:
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {storable_text(str(key)): _storable(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_storable(inner) for inner in value]
    return value
