"""The short drill: a driver's JVM, the broker and the source database die under a working shop, Airflow brings back."""

from deltaworks.local.stack import SERVICES
from deltaworks.settings import ROOT
from shop.check import BRONZE, TABLES
from shop.copies import COPIES
from tests.chance import seeded
from tests.chaos.drill import drill
from tests.chaos.victims import Victim
from tests.running_stack import running_stack


def test_after_each_kill_gold_is_fresh_in_time_and_equals_its_sources() -> None:
    """Fresh within two minutes each time; then the ledger balances, and lake, Kafka and Postgres hold the same rows."""
    chance = seeded()
    victims = [
        Victim(name=chance.choice(("shop", "web")), process="jvm"),
        Victim(name="kafka", process="main"),
        Victim(name="source", process="main"),
    ]
    chance.shuffle(victims)

    with running_stack(parts=SERVICES, project=ROOT) as settings:
        found = drill(settings, victims, chance=chance, usual_probes=2)

    assert [one.victim for one in found.outcomes] == victims
    assert len(found.compared) == len(BRONZE) + len(TABLES) + len(COPIES)
    assert min(found.sent["duplicates"], found.sent["late"], found.sent["malformed"]) > 0
    assert not found.findings
