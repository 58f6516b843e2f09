"""Row rules judge as Great Expectations does on Spark, which runs the full validation: held against it itself."""

import os
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import great_expectations as gx
import pyarrow as pa
import pytest
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
from great_expectations.validator.metric_configuration import MetricConfiguration
from great_expectations.validator.metrics_calculator import MetricsCalculator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltaworks.quality.compiling import _COMPILED, Compiled, compiled
from deltaworks.quality.judging import judge
from deltaworks.suites import Expectation, Suite
from tests import rule_corpus
from tests.chance import seeded

_EACH = int(os.environ.get("DELTAWORKS_TEST_EXPECTATIONS", "2"))
_PER_QUERY = 60
Wanted = tuple[str, dict[str, Any]]


class _Oracle:
    """Great Expectations over one DataFrame on Spark."""

    def __init__(self, rows: DataFrame) -> None:
        self.rows = rows
        context = gx.get_context(mode="ephemeral")
        asset = context.data_sources.add_spark("spark").add_dataframe_asset("rows")
        self.batch = asset.add_batch_definition_whole_dataframe("all").get_batch(batch_parameters={"dataframe": rows})
        self.engine = self.batch.data.execution_engine
        self.validated(("expect_column_values_to_not_be_null", {"column": "id"}))  # only then it knows its rows

    def validated(self, wanted: Wanted) -> set[int]:
        """The rows that a validation calls unexpected."""
        expectation = ExpectationConfiguration(type=wanted[0], kwargs=wanted[1]).to_domain_obj()
        form = {"result_format": "COMPLETE", "unexpected_index_column_names": ["id"]}
        result = self.batch.validate(expectation, result_format=form)
        assert result.exception_info.get("raised_exception") is False, result.exception_info
        return {row["id"] for row in result.result["unexpected_index_list"] or []}

    def unexpected(self, wanted: list[Wanted]) -> list[set[int]]:
        """The same for many: the conditions that its own metrics are made of, asked together."""
        metrics = [self._condition(one) for one in wanted]
        found, aborted = MetricsCalculator(execution_engine=self.engine, show_progress_bars=False).compute_metrics(
            metrics
        )
        assert not aborted, aborted
        together: dict[str, list[int]] = defaultdict(list)
        for at, metric in enumerate(metrics):
            together[str(sorted(metric.metric_domain_kwargs.items(), key=str)) if _leaves_out(metric) else ""].append(
                at
            )
        sets: list[set[int]] = [set() for _ in wanted]
        for places in together.values():
            first = metrics[places[0]]
            _, compute, accessor = found[first.id]  # of the domain: the batch, and which of its rows and columns
            rows = self.engine.get_domain_records({**compute, **accessor}) if _leaves_out(first) else self.rows
            for begin in range(0, len(places), _PER_QUERY):
                some = places[begin : begin + _PER_QUERY]
                asked = [F.coalesce(found[metrics[at].id][0], F.lit(False)).alias(f"c{at}") for at in some]
                for row in rows.select("id", *asked).collect():
                    for at in some:
                        if row[f"c{at}"]:
                            sets[at].add(row["id"])
        return sets

    def _condition(self, wanted: Wanted) -> MetricConfiguration:
        """The metric of the rows that are unexpected, found among those that the expectation asks for."""
        expectation: Any = ExpectationConfiguration(type=wanted[0], kwargs=wanted[1]).to_domain_obj()
        asked = expectation.get_validation_dependencies(self.engine, {"result_format": "COMPLETE"})
        name = f"{expectation.map_metric}.unexpected_count"
        count = asked.get_metric_configuration(name)
        assert count is not None
        return MetricConfiguration(
            f"{expectation.map_metric}.condition",
            metric_domain_kwargs=count.metric_domain_kwargs,
            metric_value_kwargs=count.metric_value_kwargs,
        )


def _leaves_out(metric: MetricConfiguration) -> bool:
    return "ignore_row_if" in metric.metric_domain_kwargs


def _compile(wanted: Iterable[Wanted]) -> list[Compiled]:
    suite = Suite(
        name="silver.rows",
        expectations=tuple(
            Expectation(type=kind, kwargs=kwargs, severity="critical", meta={}) for kind, kwargs in wanted
        ),
        waived=None,
    )
    return list(compiled(suite, rule_corpus.COLUMNS))


def _judged(one: Compiled, rows: pa.RecordBatch) -> set[int]:
    assert one.rule is not None
    everything = pa.array([True] * rows.num_rows)
    return {rows["id"][place].as_py() for place in judge([one.rule], rows, everything).refused}


@pytest.fixture(scope="module")
def oracle(spark: SparkSession) -> tuple[_Oracle, pa.RecordBatch]:
    """Give Great Expectations and the same rows as Arrow."""
    rows = rule_corpus.rows(seeded(), 160).combine_chunks()
    return _Oracle(spark.createDataFrame(rows).cache()), rows.to_batches()[0]


def test_every_compiled_type_judges_each_row_as_great_expectations_does(
    oracle: tuple[_Oracle, pa.RecordBatch],
) -> None:
    """Random rows and kwargs: the rows that a rule refuses are those that are unexpected there, for every type."""
    theirs, rows = oracle
    wanted = list(rule_corpus.expectations(seeded(), _EACH))
    ours = _compile(wanted)

    refused = [
        (one.expectation.type, dict(one.expectation.kwargs), str(one.refused)) for one in ours if one.rule is None
    ]
    found = theirs.unexpected(wanted)

    assert not refused
    assert {kind for kind, _ in wanted} == set(_COMPILED)
    other = [(kind, kwargs, sorted(_judged(one, rows) ^ unexpected))
             for (kind, kwargs), one, unexpected in zip(wanted, ours, found, strict=True)
             if _judged(one, rows) != unexpected]  # fmt: skip
    assert not other
    assert any(found)


@pytest.mark.parametrize(
    "wanted",
    [
        ("expect_column_values_to_match_regex", {"column": "name", "regex": r"^[^@\s]+$"}),
        ("expect_column_values_to_be_between", {"column": "price", "min_value": 0.1, "strict_min": True}),
        ("expect_column_pair_values_to_be_equal", {"column_A": "day", "column_B": "due"}),
    ],
    ids=["regex", "between", "pair"],
)
def test_a_validation_finds_the_rows_that_a_rule_refuses(
    oracle: tuple[_Oracle, pa.RecordBatch], wanted: Wanted
) -> None:
    """The whole way, as a scheduled validation goes it, ends at the same rows."""
    theirs, rows = oracle

    unexpected = theirs.validated(wanted)

    assert unexpected
    assert _judged(_compile([wanted])[0], rows) == unexpected
