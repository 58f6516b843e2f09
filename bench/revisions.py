"""Two revisions side by side: pairs of measurements in one sitting, and their ratios."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.checkout import Checkout
from bench.measurement import Measurement
from deltaworks.cli.show import err


@dataclass(frozen=True, kw_only=True)
class Sitting:
    """The measurements of each checkout, by name, in the order of the pairs. The last checkout is the one judged."""

    measured: Mapping[str, Sequence[Measurement]]

    @property
    def ok(self) -> bool:
        """Whether nothing was found at the checkout that is judged."""
        return all(one.ok for one in list(self.measured.values())[-1])

    def ratios(self) -> dict[str, float | None]:
        """New over old by figure: the median of the pairs' ratios, for what disturbs one pair disturbs no other."""
        old, new = ([one.figures() for one in found] for found in self.measured.values())
        return {
            name: _median([_ratio(before.get(name), after[name]) for before, after in zip(old, new, strict=True)])
            for name in new[0]
        }

    def rows(self) -> list[dict[str, object]]:
        """The lines of the table: each side's median, and the ratio."""
        ratios = self.ratios()
        sides = {name: [one.figures() for one in found] for name, found in self.measured.items()}
        return [
            {
                "measure": figure,
                **{name: _text(_median([one.get(figure) for one in found])) for name, found in sides.items()},
                "new / old": _text(ratio),
            }
            for figure, ratio in ratios.items()
        ]


def sit(checkouts: Sequence[Checkout], measure: Callable[[Checkout], Measurement], *, pairs: int) -> Sitting:
    """Measure the checkouts in turn; who goes first changes from pair to pair, so that a drift favours nobody."""
    measured: dict[str, list[Measurement]] = {checkout.name: [] for checkout in checkouts}
    for number in range(pairs):
        for checkout in checkouts if number % 2 == 0 else reversed(checkouts):
            err.print(f"{number + 1} of {pairs}: {checkout.name} ...")
            measured[checkout.name].append(measure(checkout))
    return Sitting(measured=measured)


def _ratio(before: float | None, after: float | None) -> float | None:
    return None if not before or after is None else after / before


def _median(values: Sequence[float | None]) -> float | None:
    """None if a value is missing: what is left out would favour somebody."""
    there = [value for value in values if value is not None]
    return median(there) if len(there) == len(values) else None


def _text(value: float | None) -> str | None:
    return None if value is None else f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
