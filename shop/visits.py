"""What visitors do beside looking at pages, as stories: each message a while after the one that it follows from.

Pure. The fields of a message are the columns of the silver table of the same name.
"""

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from random import Random
from typing import Literal, NamedTuple

from shop.clock import MINUTE, SECOND, clock, microseconds
from shop.faults import DISORDER_US, LATE_US, NO_OBJECT, Faults, Spoiler, not_utf8, replaced, without
from shop.page_views import session_id

Kind = Literal["event", "out_of_order", "late", "copy", "malformed"]

# Fields that may be spoiled: those that each reader of the topic needs (two tables read search_clicks), the id first.
_NEEDED: dict[str, dict[str, str]] = {
    "searches": {"search_id": "text", "searched_at": "time", "session_id": "text", "user_id": "number", "term": "text"},
    "search_clicks": {"click_id": "text", "clicked_at": "time", "user_id": "number", "url": "text"},
    "ad_impressions": {"impression_id": "text", "shown_at": "time", "ad_id": "text", "user_id": "number"},
    "ad_clicks": {"click_id": "text", "clicked_at": "time", "impression_id": "text", "user_id": "number"},
    "purchases": {"purchase_id": "text", "bought_at": "time", "user_id": "number", "amount": "amount"},
    "api_requests": {"request_id": "text", "requested_at": "time", "client_id": "text", "status": "number"},
    "cart_commands": {
        "command_id": "text",
        "given_at": "time",
        "cart_id": "text",
        "user_id": "number",
        "command": "text",
    },
}
TOPICS = tuple(_NEEDED)
_WRONG: dict[str, tuple[object, ...]] = {
    "text": (None, 7, {"path": "/"}),
    "time": (None, "yesterday"),
    "number": (None, "seventeen", 17.5),
    "amount": (None, "much", "1.005"),
}
SPOILERS: dict[str, tuple[Spoiler, ...]] = {
    topic: (
        *NO_OBJECT,
        not_utf8(next(iter(fields))),
        *(without(field) for field in fields),
        *(replaced(field, wrong) for field, sort in fields.items() for wrong in _WRONG[sort]),
    )
    for topic, fields in _NEEDED.items()
}

_SHARES_FATE = 0.5  # chance that a message has the fault of the one before it, or its good health
_TOO_LATE = 0.02  # share of effects that come after the bound within which they count
_SHORTLY_US = (1 * SECOND, 40 * SECOND)
_AFTER_AN_HOUR_US = (61 * MINUTE, 90 * MINUTE)
_AFTER_TEN_MINUTES_US = (11 * MINUTE, 20 * MINUTE)
_BETWEEN_REQUESTS_US = (SECOND // 10, SECOND // 2)

_CLICKED, _CLICKED_AGAIN = 0.5, 0.2  # shares of searches, and of clicked ones
_THINGS = ("lamp", "kettle", "mug", "novel", "atlas", "spade", "drum", "puzzle", "käsemesser", "茶碗")
_SORTS = (
    "", "big ", "black ", "blue ", "cheap ", "green ", "light ", "new ",
    "old ", "red ", "round ", "small ", "soft ", "strong ", "used ", "white ",
)  # fmt: skip
_TERMS = tuple(f"{sort}{thing}" for sort in _SORTS for thing in _THINGS)
_ADS, _AD_CLICKED, _BOUGHT = 8, 0.4, 0.4  # advertisements; shares of impressions, and of clicks on them
_PROGRAMS = ("crawler", "partner-feed", "shop-app")
_BY_PROGRAM, _BURST = 0.2, 0.03  # shares of requests (a burst counts once)
_BURST_REQUESTS = (10, 30)
_ENDPOINTS = ("/api/products", "/api/products", "/api/search", "/api/cart", "/api/orders", "/api/account")
_STATUSES = ((0.93, 200), (0.96, 404), (0.98, 500), (1.0, 503))
_REFUSED_FROM = 8  # requests of a burst that are answered before the rest is told to wait
_COMMANDS = (2, 7)  # of a cart, before it is checked out or left
_IMPOSSIBLE, _CHECKED_OUT, _ADDED_TOO_LATE = 0.03, 0.6, 0.05  # shares of commands, carts, and of those checked out


class Message(NamedTuple):
    """One message and when it is sent; what is held back on its way happened earlier. `number` breaks ties."""

    send_us: int
    number: int
    kind: Kind
    topic: str
    key: bytes
    value: bytes


class _Story:
    """When the next message of a story happens, when it is sent, and what is wrong with it.

    The first one, if it is out of order or late, happened before the story begins. Later ones are held back instead,
    so that an effect never comes before its cause in event time.
    """

    def __init__(self, random: Random, faults: Faults, begin_us: int) -> None:
        self._random, self._faults, self._begin_us = random, faults, begin_us
        self.kind, self._lag_us = self._fate()
        self.at_us = begin_us - self._lag_us

    @property
    def send_us(self) -> int:
        return self.at_us + self._lag_us

    def follow(self, between_us: tuple[int, int]) -> None:
        """Go on to the next message."""
        delay_us = self._random.randint(*between_us)
        if self._random.random() >= _SHARES_FATE:
            self.kind, self._lag_us = self._fate()
            self.at_us = max(self.at_us, self._begin_us)  # what is sent in time does not lie before the story
        self.at_us += delay_us

    def _fate(self) -> tuple[Kind, int]:
        faults, roll = self._faults, self._random.random()
        late_below = faults.malformed + faults.late
        if roll < faults.malformed:
            return "malformed", 0
        if roll < late_below:
            return "late", self._random.randint(*LATE_US)
        if roll < late_below + faults.out_of_order:
            return "out_of_order", self._random.randint(*DISORDER_US)
        return "event", 0


class Visitors:
    """Tells one story after the other; `users` and `products` are numbered from 1."""

    def __init__(self, *, random: Random, run: str, start: datetime, users: int, products: int, faults: Faults) -> None:
        self._random, self._run, self._faults = random, run, faults
        self._users, self._products = users, products
        self._clock, self._start_us = clock(start), microseconds(start)
        self._number = 0

    def story(self, begin_us: int) -> Iterator[Message]:
        """Yield the messages of the next story; the first is to be sent at `begin_us`, none before it."""
        stories: tuple[Callable[[_Story], Iterator[Message]], ...] = (
            self._search, self._search, self._search, self._advertisement, self._advertisement, self._advertisement,
            self._cart, self._request, self._request, self._purchase,
        )  # fmt: skip
        told = self._random.choice(stories)
        return told(_Story(self._random, self._faults, begin_us))

    def _search(self, story: _Story) -> Iterator[Message]:
        user, search = self._user(), self._id()
        session = session_id(self._run, user, self._start_us + story.send_us)
        visit = {"session_id": session, "user_id": user}
        term = self._random.choice(_TERMS)
        yield self._said(story, "searches", session, "searched_at", {"search_id": search, **visit, "term": term})
        clicks = 1 + self._happens(_CLICKED_AGAIN) if self._happens(_CLICKED) else 0
        for _ in range(clicks):
            self._effect(story, _AFTER_AN_HOUR_US)
            fields = {"click_id": self._id(), "search_id": search, **visit, "url": f"/products/{self._product()}"}
            yield self._said(story, "search_clicks", session, "clicked_at", fields)

    def _advertisement(self, story: _Story) -> Iterator[Message]:
        impression, user = self._id(), self._user()
        ad = f"ad-{self._random.randint(1, _ADS)}"
        shown = {"impression_id": impression, "ad_id": ad, "user_id": user}
        yield self._said(story, "ad_impressions", impression, "shown_at", shown)
        if not self._happens(_AD_CLICKED):
            return
        self._effect(story, _AFTER_TEN_MINUTES_US)
        yield self._said(story, "ad_clicks", impression, "clicked_at", {"click_id": self._id(), **shown})
        if self._happens(_BOUGHT):
            self._effect(story, _AFTER_AN_HOUR_US)
            yield self._bought(story, user)

    def _purchase(self, story: _Story) -> Iterator[Message]:
        yield self._bought(story, self._user())

    def _bought(self, story: _Story, user: int) -> Message:
        amount = Decimal(self._random.randint(99, 29_999)).scaleb(-2)
        fields = {"purchase_id": self._id(), "user_id": user, "amount": str(amount)}  # a text: exact to every reader
        return self._said(story, "purchases", str(user), "bought_at", fields)

    def _request(self, story: _Story) -> Iterator[Message]:
        burst = self._happens(_BURST)
        program = burst or self._happens(_BY_PROGRAM)
        # addresses of 2001:db8::/32 are for documentation: nobody has them
        client = self._random.choice(_PROGRAMS) if program else f"2001:db8::{self._user():x}"
        endpoint = self._random.choice(_ENDPOINTS)
        for number in range(self._random.randint(*_BURST_REQUESTS) if burst else 1):
            if number:
                story.follow(_BETWEEN_REQUESTS_US)
            roll = self._random.random()
            status = 429 if number >= _REFUSED_FROM else next(code for below, code in _STATUSES if roll < below)
            fields = {
                "request_id": self._id(),
                "client_id": client,
                "endpoint": endpoint,
                "status": status,
                "milliseconds": 2 + min(int(self._random.expovariate(1 / 60)), 30_000),
            }
            yield self._said(story, "api_requests", client, "requested_at", fields)

    def _cart(self, story: _Story) -> Iterator[Message]:
        """A cart is filled, and checked out or left. It is planned as if all its commands arrive."""
        cart, user = self._id(), self._user()
        held: dict[int, int] = {}

        def said(command: str, product: int | None = None, quantity: int | None = None) -> Message:
            fields = {"command_id": self._id(), "cart_id": cart, "user_id": user, "command": command}
            return self._said(
                story, "cart_commands", cart, "given_at", {**fields, "product_id": product, "quantity": quantity}
            )

        for number in range(self._random.randint(*_COMMANDS)):
            if number:
                story.follow(_SHORTLY_US)
            possible = not self._happens(_IMPOSSIBLE)
            yield said(*(self._possible(held) if possible else self._impossible(held)))
        if held and self._happens(_CHECKED_OUT):
            story.follow(_SHORTLY_US)
            yield said("check_out")
            if self._happens(_ADDED_TOO_LATE):
                story.follow(_SHORTLY_US)
                yield said("add", self._product(), 1)

    def _possible(self, held: dict[int, int]) -> tuple[str, int, int | None]:
        """Give command, product and quantity, and do to `held` what they do to the cart."""
        roll = self._random.random()
        if not held or roll < 0.6:
            product, quantity = self._product(), self._random.randint(1, 3)
            held[product] = held.get(product, 0) + quantity
            return "add", product, quantity
        product = self._random.choice(tuple(held))
        if roll < 0.8:
            held[product] = self._random.randint(1, 5)
            return "change_quantity", product, held[product]
        del held[product]
        return "remove", product, None

    def _impossible(self, held: dict[int, int]) -> tuple[str, int | None, int | None]:
        """Give a command that the cart refuses."""
        ways: list[tuple[str, int | None, int | None]] = [("add", self._product(), 0)]
        if not held:
            ways.append(("check_out", None, None))
        missing = self._product()
        if missing not in held:
            ways += [("remove", missing, None), ("change_quantity", missing, 2)]
        return self._random.choice(ways)

    def _effect(self, story: _Story, after_the_bound_us: tuple[int, int]) -> None:
        story.follow(after_the_bound_us if self._happens(_TOO_LATE) else _SHORTLY_US)

    def _said(self, story: _Story, topic: str, key: str, time: str, fields: dict[str, object]) -> Message:
        event = {**fields, time: self._clock(story.at_us)}
        value = json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode()
        if story.kind == "malformed":
            value = self._random.choice(SPOILERS[topic])(value)
        return Message(story.send_us, self._number, story.kind, topic, key.encode(), value)

    def _id(self) -> str:
        self._number += 1
        return f"{self._run}-{self._number}"

    def _user(self) -> int:
        return 1 + int(self._users * self._random.random() * self._random.random())  # as for page views

    def _product(self) -> int:
        return 1 + int(self._products * self._random.random() * self._random.random())

    def _happens(self, share: float) -> bool:
        return self._random.random() < share
