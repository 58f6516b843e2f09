"""What the stream has set aside by the critical rules of a suite, told as Great Expectations tells what it has judged.

A row that breaks a rule never comes into the table, where Great Expectations would meet it; it is counted in quarantine
as long as nobody has decided on it.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import deltalake
import great_expectations as gx
from great_expectations.core import ExpectationSuite, RunIdentifier
from great_expectations.core.expectation_validation_result import (
    ExpectationSuiteValidationResult,
    ExpectationValidationResult,
)
from great_expectations.data_context import EphemeralDataContext
from great_expectations.data_context.types.resource_identifiers import (
    ExpectationSuiteIdentifier,
    ValidationResultIdentifier,
)

from deltaworks.catalog import Declared
from deltaworks.engine.datasets import dataset_of, ds
from deltaworks.engine.folders import folder_of
from deltaworks.engine.lake import read_commit
from deltaworks.quality.planning import Planned
from deltaworks.quality.rule import Null
from deltaworks.quality.verdict import Judged
from deltaworks.settings import Settings
from deltaworks.suites import Expectation
from deltaworks.validation.site import SITE
from deltaworks.validation.stores import as_theirs, verdict_of

_OF_THE_STREAM = ".stream"
"""Data Docs have these results beside the suite's, under its name with this."""


@dataclass(frozen=True, kw_only=True)
class SetsAside:
    """An expectation that sets rows aside, and the reasons that quarantine has for them."""

    expectation: Expectation
    reasons: Callable[[str], bool]


def setting_aside(plan: Sequence[Planned]) -> list[SetsAside]:
    """Those of a suite. What the declaration refuses for its type, or as null, is of the one that says the same.

    Quarantine knows no two of one type and the same columns apart: each has the rows of both.
    """
    found = []
    for one in plan:
        if not one.parses or one.expectation.severity != "critical":
            continue
        rule, column = one.compiled.rule, str(one.expectation.kwargs.get("column", ""))
        places = () if column in _PLACES else _NOTHING
        if rule is not None:
            also = {f"{column}: {word}" for word in places if rule.check == Null(column=column, wanted=False)}
            reasons: Callable[[str], bool] = frozenset({rule.reason, *also}).__contains__
        elif one.compiled.settled and places:
            reasons = partial(_of_type, column)
        else:
            continue
        found.append(SetsAside(expectation=one.expectation, reasons=reasons))
    return found


_NOTHING = ("null", "missing")
_PLACES = frozenset({"", "after", "before", "key", "op", "rule", "source"})
"""Before the colon of a reason stands the column, or one of these, of a record or a rule."""
_OF_TYPE = re.compile("not |out of range|more digits|NaN|infinite")
"""How the parser's codes for a value that is not of its type begin (`engine/parsing/values.py`)."""


def _of_type(column: str, reason: str) -> bool:
    name, _, why = reason.partition(": ")
    return name == column and _OF_TYPE.match(why) is not None


def judged_in_the_stream(
    context: EphemeralDataContext,
    settings: Settings,
    declared: Declared,
    those: Sequence[SetsAside],
    *,
    version: int,
    at: datetime,
) -> list[Judged]:
    """How many rows are set aside for each of these; `version`: of the table, for how many it has read."""
    if not those:
        return []
    aside, read = _aside(settings, declared.name), _read(settings, declared.name, version)
    counts = [sum(rows for reason, rows in aside.items() if one.reasons(reason)) for one in those]
    given = [as_theirs(one.expectation) for one in those]
    suite = context.suites.add(ExpectationSuite(name=f"{declared.name}{_OF_THE_STREAM}", expectations=given))
    results = [
        ExpectationValidationResult(
            success=not count, expectation_config=one.configuration, result=_counts(count, read)
        )
        for count, one in zip(counts, suite.expectations, strict=True)
    ]
    _keep(context, suite.name, results, at)
    return [
        Judged(
            expectation=one.expectation,
            verdict=verdict_of(result),
            result=json.dumps(result.to_json_dict(), sort_keys=True),
            where="in the stream",
        )
        for one, result in zip(those, results, strict=True)
    ]


def _aside(settings: Settings, table: str) -> Counter[str]:
    """Open rows by why they are."""
    path = str(folder_of(f"{table}__quarantine", settings.lake))
    if not deltalake.DeltaTable.is_deltatable(path):
        return Counter()
    rows = dataset_of(deltalake.DeltaTable(path)).to_table(columns=["reason"], filter=ds.field("state") == "open")
    return Counter(rows["reason"].to_pylist())


def _read(settings: Settings, table: str, version: int) -> int:
    """How many rows the table has judged."""
    entry = read_commit(folder_of(table, settings.lake), version).entry
    return 0 if entry is None else entry.totals.read - entry.totals.not_mine


def _counts(aside: int, read: int) -> dict[str, float]:
    percent = 100 * aside / read if read else 0.0
    return {
        "element_count": read,
        "unexpected_count": aside,
        "unexpected_percent": percent,
        "unexpected_percent_total": percent,
    }


def _keep(
    context: EphemeralDataContext, suite: str, results: Sequence[ExpectationValidationResult], at: datetime
) -> None:
    """Put them where the results of Checkpoints are, and into Data Docs."""
    met = sum(bool(one.success) for one in results)
    run = RunIdentifier(run_time=at)
    whole = ExpectationSuiteValidationResult(
        success=met == len(results),
        results=[*results],
        suite_name=suite,
        statistics={
            "evaluated_expectations": len(results),
            "successful_expectations": met,
            "unsuccessful_expectations": len(results) - met,
            "success_percent": 100 * met / len(results),
        },
        meta={"run_id": run, "great_expectations_version": gx.__version__},
    )
    of_suite = ExpectationSuiteIdentifier(name=suite)
    key = ValidationResultIdentifier(expectation_suite_identifier=of_suite, run_id=run, batch_identifier="stream")
    context.validation_results_store.store_validation_results(whole, key)
    pages: list[Any] = [key, of_suite]  # its type knows no list of both, its own action gives one
    context.build_data_docs(site_names=[SITE], resource_identifiers=pages)
