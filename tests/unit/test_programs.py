"""Programs of a project as parts of the local stack: what is filled in, and how a mistake is told."""

from pathlib import Path

import pytest

from deltaworks.errors import SettingsError, StackError
from deltaworks.local import stack
from deltaworks.local.part import Part
from deltaworks.local.ports import check_free
from deltaworks.settings import ROOT, Settings

FILE = """
[processes.worker]
run = ["shop.work", "--name", "{part}", "--to", "127.0.0.1:{port_box_smtp}", "--keep", "{data}/work"]
count = 2
after = ["kafka", "box"]

[processes.box]
run = ["shop.box", "{port_box_web}"]
ports = { web = 17001, smtp = 17002 }
ready = "web"
"""


def load(folder: Path, text: str, environment: dict[str, str] | None = None) -> Settings:
    """Load a project with this file."""
    (folder / "deltaworks.toml").write_text(text)
    return Settings.load(folder, environment=environment or {})


def own(settings: Settings) -> dict[str, Part]:
    """The parts of the project's processes."""
    return {part.name: part for part in stack.all_parts(settings) if part.of in settings.processes}


def test_programs_are_parts_with_their_arguments_filled_in(tmp_path: Path) -> None:
    """As many as wanted, each with a name, a log and what it needs; a port is named once."""
    settings = load(tmp_path, FILE)

    parts = own(settings)

    assert {*parts} == {"worker-1", "worker-2", "box"}
    keep = f"{settings.data}/work"
    assert parts["worker-2"].command[1:] == (
        "-m", "shop.work", "--name", "worker-2", "--to", "127.0.0.1:17002", "--keep", keep
    )  # fmt: skip
    assert parts["worker-1"].log == settings.logs / "worker-1.log"
    assert {"kafka", "topics", "box"} <= {*parts["worker-1"].after}
    assert parts["worker-1"].probe is None
    assert parts["box"].probe is not None
    assert parts["box"].port == parts["box"].probe.port == 17001


def test_ports_of_programs_come_from_the_environment_too(tmp_path: Path) -> None:
    """As every port, and a child loads the same ones; a taken one is told with the setting that moves it."""
    settings = load(tmp_path, FILE, {"DELTAWORKS_PORT_BOX_SMTP": "17003"})

    child = Settings.load(environment=settings.environment())

    assert settings.ports["port_box_smtp"] == 17003
    assert settings.ports["port_box_web"] == 17001
    assert child == settings
    twice = load(tmp_path, FILE, {"DELTAWORKS_PORT_BOX_SMTP": "17001"})
    with pytest.raises(StackError, match=r"DELTAWORKS_PORT_BOX_SMTP, or box_smtp under \[processes\]"):
        check_free(twice, ["port_box_web", "port_box_smtp"])


def test_programs_of_this_project_are_right() -> None:
    """What deltaworks.toml of this checkout declares can be started."""
    assert {"simulator", "notify-1", "notify-2", "inbox"} <= {*own(Settings.load(ROOT, environment={}))}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[processes.kafka]\nrun = ['x']", r"\[processes\] kafka: there is a part or step kafka already"),
        ("[processes.topics]\nrun = ['x']", r"\[processes\] topics: there is a part or step topics already"),
        (
            "[processes.x]\nrun = ['x']\ncount = 2\n[processes.x-1]\nrun = ['x']",
            "x-1: there is a part or step x-1 already",
        ),
        (
            "[processes.x-1]\nrun = ['x']\n[processes.x]\nrun = ['x']\ncount = 2",
            "x: there is a part or step x-1 already",
        ),
        ("[processes.x]\nrun = ['x']\nafter = ['kafak']", r"x after: there is no part kafak. Known are airflow, "),
        ("[processes.x]\nrun = ['x']\nafter = ['x']", "x after: there is no part x"),
        ("[processes.x]\nrun = ['x', '{prot}']", "x run: cannot be filled in: 'prot'. Known are {data}, {part}, "),
        ("[processes.x]\nrun = ['x', '{']", "x run: cannot be filled in: "),
        ("[processes.x]\nrun = ['x', '{data.foo}']", "x run: cannot be filled in: .* Known are {data}, {part}, "),
        ("[processes.x]\nrun = ['x', '{port_kafka[0]}']", "x run: cannot be filled in: .* Known are {data}, {part}, "),
        ("[processes.x]\nrun = ['x', '{part[9]}']", "x run: cannot be filled in: .* Known are {data}, {part}, "),
        ("[processes.x]\nrun = ['x']\ncount = 2\nports = {a = 1}", "x count: several cannot listen"),
        ("[processes.x]\nrun = ['x']\nports = {a = 1}\nready = 'b'", "x ready: it has no port b"),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path: Path, text: str, error: str) -> None:
    """File, process, field and what there is."""
    with pytest.raises(SettingsError, match=error):
        stack.all_parts(load(tmp_path, text))
