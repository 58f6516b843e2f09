"""The list of expectations is Great Expectations' own."""

import great_expectations.expectations  # noqa: F401  # registers them
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.registry import get_expectation_impl, list_registered_expectation_implementations

from deltaworks.expectation_types import COMMON, TYPES


def test_types_and_arguments_are_the_librarys() -> None:
    """A new version of the library with other expectations or arguments fails here, not in a suite."""
    known = {*Expectation.__fields__, *COMMON, "library_metadata"}

    theirs = {}
    for name in list_registered_expectation_implementations():
        fields = {key: field for key, field in get_expectation_impl(name).__fields__.items() if key not in known}
        required = " ".join(sorted(key for key, field in fields.items() if field.required))
        theirs[name] = (required, " ".join(sorted(key for key, field in fields.items() if not field.required)))

    assert theirs
    assert theirs == TYPES
