"""What a person may have done to an app's tables: which operations there are, and what they order."""

import pytest

from deltaworks import operations
from deltaworks.catalog import Catalog, load
from deltaworks.control.commands import RECOMPUTE
from deltaworks.engine.commands import KINDS
from deltaworks.errors import DeltaworksError
from deltaworks.operations import ALL, OPERATIONS
from deltaworks.settings import ROOT

EMPTY = dict.fromkeys(operations.FIELDS)


@pytest.fixture(scope="module")
def shop() -> Catalog:
    """Give the shop's tables."""
    return load(ROOT)


def filled(table: str | None, **given: object) -> dict[str, object]:
    """A form in which only this is filled in."""
    return {**EMPTY, "plan_only": False, "table": table, **given}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_operation_orders_what_an_owner_knows(shop: Catalog, operation: str) -> None:
    """Of every table that it fits; there is one in the shop."""
    examples = {"to": "2026-11-20T10:00", "cause": "no key"}
    needs = {name: value for name, value in examples.items() if name in OPERATIONS[operation].takes}
    found = [
        order
        for app in shop.apps
        for table in shop.app(app)
        if operation in operations.of_app(shop, app) and OPERATIONS[operation].fits(table)
        for order in operations.orders(shop, app, operation=operation, given=filled(table.name, **needs))
    ]

    assert found
    assert {order.kind for order in found} <= {*KINDS, RECOMPUTE}


@pytest.mark.parametrize(
    ("operation", "given", "arguments"),
    [
        ("vacuum", {"hours": 0}, {"hours": 0}),
        ("rebuild", {"plan_only": True}, {"what": "rebuild", "plan_only": True}),
        ("rewind", {"to": "17"}, {"what": "rewind", "to": 17, "plan_only": False}),
        ("rewind", {"to": "2026-11-20"}, {"what": "rewind", "to": "2026-11-20T00:00:00+00:00", "plan_only": False}),
        ("replay", {"to": "2026-11-20T10:00"},
         {"what": "replay", "since": "2026-11-20T10:00:00+00:00", "plan_only": False}),
        ("late revise", {"to": "1970-01-01T00:00:01"}, {"to_micros": 1_000_000}),
        ("quarantine discard", {"cause": "no key"}, {"cause": "no key"}),
        ("quarantine discard", {"cause": "any"}, {"cause": None}),
        ("quarantine replay", {"cause": ""}, {"cause": None}),
    ],
)  # fmt: skip
def test_an_operation_orders_what_the_form_says(
    shop: Catalog, operation: str, given: dict[str, object], arguments: dict[str, object]
) -> None:
    """Times are UTC if they do not say otherwise; what was emptied again is empty."""
    form = filled("silver.page_views", **given)

    (order,) = operations.orders(shop, "web", operation=operation, given=form)

    assert order.arguments == arguments


def test_all_tables_are_those_that_it_fits_inputs_first(shop: Catalog) -> None:
    """A rebuild, which carries the tables above with it, is ordered for the lowest alone."""
    everything = [one.table for one in operations.orders(shop, "shop", operation="compact", given=filled(ALL))]
    again = operations.orders(shop, "shop", operation="rebuild", given=filled(ALL))
    expiring = operations.orders(shop, "web", operation="expire", given=filled(ALL))

    assert everything == [one.name for one in shop.app("shop")]
    assert {one.table for one in again} == {one.name for one in shop.app("shop") if one.parses}
    assert {one.table for one in expiring} == {one.name for one in shop.app("web") if one.table.keep_days is not None}


@pytest.mark.parametrize(
    ("operation", "form", "finding"),
    [
        ("compress", filled(ALL), "there is no such operation"),
        ("compact", filled(None), "nothing says which table"),
        ("compact", filled(operations.NONE), "nothing says which table"),
        ("compact", filled("silver.order"), "app shop has no such table"),
        ("compact", filled("silver.page_views"), "app shop has no such table"),
        ("compact", filled(ALL, hours=3), "it takes no hours"),
        ("vacuum", filled(ALL, plan_only=True), "it takes no plan_only"),
        ("quarantine accept", filled("silver.orders", cause="no key"), "it takes no cause"),
        ("rebuild", filled("bronze.shop_changes"), "it is not for this table. It is for "),
        ("rewind", filled("silver.orders"), "nothing says which to"),
        ("quarantine discard", filled(ALL), "nothing says which cause"),
        ("rewind", filled("silver.orders", to="yesterday"), "'yesterday' is no time such as"),
        ("rewind", filled("silver.orders", to="²"), "'²' is no time such as"),
        ("rewind", filled(ALL, to="2026-11-20"), "it is for one table"),
    ],
)
def test_what_cannot_be_done_is_told_with_the_next_step(
    shop: Catalog, operation: str, form: dict[str, object], finding: str
) -> None:
    """Before anything is ordered; nothing that was filled in is left aside in silence."""
    with pytest.raises(DeltaworksError, match=finding):
        operations.orders(shop, "shop", operation=operation, given=form)


@pytest.mark.parametrize(
    ("operation", "form", "finding"),
    [
        ("stop", filled("silver.orders"), "it takes no table"),
        ("drain", filled(None, to="4"), "it takes no to"),
        ("commands cancel", filled(None), "nothing says which command"),
    ],
)
def test_operations_on_the_app_take_no_table(operation: str, form: dict[str, object], finding: str) -> None:
    """Who chose a table meant something else."""
    with pytest.raises(DeltaworksError, match=finding):
        operations.check_fields(operation, form)
    operations.check_fields("stop", filled(operations.NONE))
    operations.check_fields("commands cancel", filled(None, command=7))


def test_an_app_offers_what_fits_its_tables(shop: Catalog) -> None:
    """No table of the shop's app sets late rows aside."""
    assert "late apply" in operations.of_app(shop, "web")
    assert "late apply" not in operations.of_app(shop, "shop")
    assert {"compact", "vacuum", "rebuild", "rewind"} <= operations.of_app(shop, "shop").keys()
