"""The project's own programs, `[processes]` in deltaworks.toml: parts that start when they are asked for."""

from collections.abc import Collection

from deltaworks.errors import SettingsError
from deltaworks.local.part import Part, Probe
from deltaworks.settings import ProcessSettings, Settings


def parts(settings: Settings, stack: Collection[Part]) -> tuple[Part, ...]:
    """Every program as often as it is to run; `stack` are the parts of the stack itself.

    Raises SettingsError for a program that has the name of a part or step, or names a part or port that is not there.
    """
    of = {part.name: part.of for part in stack}
    names = {name: _names(name, one) for name, one in settings.processes.items()}
    taken = {*of, *of.values()}
    for name, found in names.items():
        if twice := sorted(taken & {name, *found}):
            raise _wrong(settings, name, f"there is a part or step {twice[0]} already", "Give it another name")
        taken |= {name, *found}
    of |= {part: name for name, found in names.items() for part in found}
    return tuple(_part(settings, name, part, of) for name, found in names.items() for part in found)


def _part(settings: Settings, name: str, part: str, of: dict[str, str]) -> Part:
    one = settings.processes[name]
    for other in one.after:
        if other not in of.values() or other == name:
            known = ", ".join(sorted({*of.values()} - {name}))
            raise _wrong(settings, f"{name} after", f"there is no part {other}", f"Known are {known}")
    if one.count > 1 and one.ports:
        raise _wrong(settings, f"{name} count", "several cannot listen on the same port", "Have one, or no ports")
    if one.ready is not None and one.ready not in one.ports:
        raise _wrong(settings, f"{name} ready", f"it has no port {one.ready}", "Name one of its ports")
    port = None if one.ready is None else one.ports[one.ready]
    return Part(
        name=part,
        of=name,
        command=(str(settings.spark_python), "-m", *_filled(settings, name, part)),
        folder=settings.project,  # where its module is looked for first
        log=settings.logs / f"{part}.log",
        after=tuple(known for known, service in of.items() if service in one.after),
        probe=None if port is None else Probe(kind="http", host=one.host, port=port),
        port=port,
    )


def _names(name: str, one: ProcessSettings) -> tuple[str, ...]:
    return (name,) if one.count == 1 else tuple(f"{name}-{number}" for number in range(1, one.count + 1))


def _filled(settings: Settings, name: str, part: str) -> tuple[str, ...]:
    """Module and arguments with what stands in braces filled in."""
    values = {"data": settings.data, "part": part, "listen": settings.listen, **settings.hosts, **settings.ports}
    try:
        return tuple(argument.format_map(values) for argument in settings.processes[name].run)
    except (LookupError, ValueError, AttributeError, TypeError) as error:
        known = ", ".join(f"{{{value}}}" for value in values)
        raise _wrong(settings, f"{name} run", f"cannot be filled in: {error}", f"Known are {known}") from None


def _wrong(settings: Settings, place: str, finding: str, next_step: str) -> SettingsError:
    return SettingsError(f"{settings.project / 'deltaworks.toml'} [processes] {place}", finding, next_step)
