"""`deltaworks chaos list | run`: break the local stack on purpose, and see that it comes back right."""

from random import SystemRandom
from typing import TYPE_CHECKING, Annotated

import typer

from deltaworks.cli import show
from deltaworks.cli.context import settings
from deltaworks.errors import StackError
from deltaworks.settings import Settings

if TYPE_CHECKING:
    from deltaworks.catalog import Catalog
    from deltaworks.cli.recovery import Recovery
    from deltaworks.control import Store
    from deltaworks.local.chaos.fault import Fault, Scene

_AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]


def register(main: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help="Faults, done to the local stack on purpose.", rich_markup_mode=None)
    group.command("list")(listed)
    group.command()(run)
    main.add_typer(group, name="chaos")


def listed(*, as_json: _AsJson = False) -> None:
    """List the faults: what each does, how it is undone, what must hold afterwards."""
    from deltaworks.local.chaos.faults import FAULTS

    rows = [
        {"fault": one.name, "does": one.does, "undone": one.undone, "then": one.holds, "destroys": one.destroys}
        for one in FAULTS
    ]
    if not as_json:  # what fits a terminal; docs/chaos.md has the rest
        rows = [{"fault": row["fault"], "does": row["does"], "destroys": row["destroys"]} for row in rows]
    show.listing(rows, title="faults", as_json=as_json)


def run(
    name: Annotated[str, typer.Argument(help="Name of the fault; see deltaworks chaos list.", metavar="FAULT")],
    *,
    seed: Annotated[int | None, typer.Option(help="Draws times and places; default: by chance.")] = None,
    app: Annotated[str | None, typer.Option(help="Whose driver; default: drawn from those that run.")] = None,
    topic: Annotated[str | None, typer.Option(help="Which topic; default: drawn from those of the app.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    destroy: Annotated[bool, typer.Option("--destroy", help="Also a fault that destroys something.")] = False,
) -> None:
    """Do a fault to this project's local stack, wait until it has recovered, let the checker look.

    The same seed draws the same again. Exit code 1 if something is found.
    """
    from deltaworks.cli.recovery import recover, with_taken
    from deltaworks.control import Store
    from deltaworks.local import stack
    from deltaworks.local.chaos.faults import fault

    loaded, one = settings(), fault(name)
    if one.destroys and not destroy:
        raise StackError(
            one.name, "destroys rows, or changes the project", f'"{one.does}": add --destroy if you want it'
        )
    if not stack.alive(loaded):
        raise StackError(
            "local stack", "does not run here, and nothing else is broken on purpose", 'Run "deltaworks up"'
        )
    seed = SystemRandom().randrange(2**32) if seed is None else seed
    with Store(loaded.control_dsn(), application="deltaworks chaos") as store:
        running = _running(loaded, store)
        scene = _scene(loaded, store, one, seed=seed, running=running, app=app, topic=topic)
        if why := one.missing(scene):
            raise StackError(one.name, f"cannot be done here: {why}", "Choose another: deltaworks chaos list")
        _say(f"seed {seed}, app {scene.app}, topic {scene.topic}: {one.does}")
        if not yes:
            typer.confirm(f"Do this to the stack in {loaded.data}?", abort=True)
        lost = with_taken(_lost(loaded, running), one.inflict(scene))
        recovery = recover(scene, apps=running, lost=lost)
    _told(one, recovery)


def _running(loaded: Settings, store: "Store") -> list[str]:
    """Apps that are wanted running; raises StackError unless all of them, and all parts, are well."""
    from deltaworks.cli.recovery import not_well

    wanted = [one.name for one in store.apps() if one.desired == "running"]
    if not wanted:
        raise StackError("apps", "none is wanted running", 'Run "deltaworks app start --all"')
    if why := not_well(loaded, store, wanted):
        raise StackError("local stack", f"is not well before the fault: {why}", 'Run "deltaworks doctor"')
    return sorted(wanted)


def _scene(
    loaded: Settings, store: "Store", one: "Fault", *, seed: int, running: list[str], app: str | None, topic: str | None
) -> "Scene":
    """Draw the app and the topic unless they are given; what the fault draws is the same either way."""
    from deltaworks import catalog
    from deltaworks.cli.recovery import scene_of
    from deltaworks.local.chaos.fault import chance_of

    app = app or chance_of("app", seed).choice(running)
    if app not in running:
        raise StackError(f"app {app}", "does not run", f"Those that do: {', '.join(running)}")
    topic = topic or chance_of("topic", seed).choice(_topics(catalog.load(loaded.project), app))
    return scene_of(loaded, store, chance=chance_of(one.name, seed), app=app, topic=topic, say=_say)


def _topics(found: "Catalog", app: str) -> list[str]:
    """Topics that the app reads."""
    return sorted({topic for one in found.tables.values() if one.table.app == app for topic in one.topics})


def _lost(loaded: Settings, apps: list[str]) -> dict[str, int]:
    """What the ledger shows as lost already."""
    from deltaworks import catalog
    from deltaworks.engine.ledger import Ledger

    found, lost = catalog.load(loaded.project), dict[str, int]()
    ours = {topic for app in apps for topic in _topics(found, app)}
    for line in Ledger(found, loaded.lake).lines():
        if line.topic in ours and line.lost:
            lost[line.topic] = lost.get(line.topic, 0) + line.lost
    return lost


def _told(fault: "Fault", recovery: "Recovery") -> None:
    for finding in recovery.findings:
        show.err.print(finding, markup=False, soft_wrap=True)
    if recovery.findings:
        raise typer.Exit(1)
    _say(f"{fault.name}: all runs again and every table is up to date, {recovery.seconds:.1f} s after its end")
    _say(f"Held: {fault.holds}")


def _say(text: str) -> None:
    show.out.print(text, markup=False, soft_wrap=True)
