"""What runs on the host, run here: bash on real files, with stand-ins for AWS, Docker and the disk's programs."""

import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.terraform.program import SOURCE

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("jq") is None,
    reason="the host is a Linux with jq, which this machine is not",
)
PROGRAMS = SOURCE / "modules/host/files"
_RECORD = '#!/bin/bash\necho "$(basename "$0") $*" >>"$CALLS"\n'
_WELL = [{"app": "shop", "state": "healthy", "broken": False}, {"app": "web", "state": "idle", "broken": False}]
_OF_APPS = {"Behind", "Suspended", "Broken", "Unwell"}
_BALANCED = [{"topics": [], "tables": [], "balanced": True}]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Host:
    """A folder that stands for the host."""

    root: Path

    def stand_in(self, name: str, does: str = "") -> None:
        """A program of that name that writes down how it was called, and does this."""
        path = self.root / "bin" / name
        path.write_text(f"{_RECORD}{does}\n")
        path.chmod(0o755)

    def run(self, program: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the host."""
        path = f"{self.root / 'bin'}:{PROGRAMS}:{os.environ['PATH']}"
        told = {"PATH": path, "HOST_ENV": str(self.root / "host.env"), "CALLS": str(self.root / "calls")}
        command = ["bash", str(PROGRAMS / program)]
        return subprocess.run(
            command, env=told, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60
        )

    def calls(self, name: str) -> list[str]:
        """How a stand-in was called, each time."""
        path = self.root / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.removeprefix(f"{name} ") for line in lines if line.startswith(f"{name} ")]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A host with the settings that the module writes."""
    for folder in ("bin", "data/project", "devices"):
        (tmp_path / folder).mkdir(parents=True)
    owner = os.getuid()
    (tmp_path / "host.env").write_text(
        f"NAME='test'\nREGION='eu-central-1'\nVOLUME_ID='vol-0abc'\nDEVICES='{tmp_path}/devices'\n"
        f"DATA='{tmp_path}/data'\nSECRETS='{tmp_path}/secrets'\nSECRET_NAMES='reader shop'\nOWNER='{owner}'\n"
        f"BUCKET='files'\nRELEASE_PARAMETER='/test/release'\nNAMESPACE='Deltaworks/test'\n"
        f"PLUGINS='{tmp_path}/plugins'\nPROFILES='demo'\nAIRFLOW_PORT='9080'\n"
    )
    made = Host(root=tmp_path)
    for name in ("docker", "mount", "xfs_growfs", "mkfs.xfs"):
        made.stand_in(name)
    made.stand_in("mountpoint", "exit 1")
    return made


@pytest.mark.parametrize("program", sorted(path.name for path in PROGRAMS.iterdir()))
def test_program_is_bash_that_stops_at_errors(program: str) -> None:
    """Bash can read it, and it says what it is for."""
    text = (PROGRAMS / program).read_text()

    ran = subprocess.run(["bash", "-n", PROGRAMS / program], capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stderr
    assert text.startswith("#!/bin/bash\n# ")
    assert "set -euo pipefail" in text


def test_settings_that_programs_read_are_those_that_the_module_writes(host: Host) -> None:
    """No program reads a setting that nobody gives."""
    written = {line.split("=")[0].strip() for line in _host_env().splitlines() if "=" in line}

    assert {line.split("=")[0] for line in (host.root / "host.env").read_text().splitlines()} == written


def _host_env() -> str:
    return (SOURCE / "modules/host/user-data.tf").read_text().partition("host_env = <<-EOT\n")[2].partition("EOT")[0]


def test_new_volume_is_formatted_and_mounted(host: Host) -> None:
    """Zeros only: nobody has written to it."""
    (host.root / "devices/nvme-Amazon_Elastic_Block_Store_vol0abc").write_bytes(bytes(2_000_000))

    ran = host.run("deltaworks-volume")

    assert ran.returncode == 0, ran.stderr
    assert len(host.calls("mkfs.xfs")) == 1
    assert host.calls("mount")[0].endswith(f" {host.root}/data")


def test_volume_with_data_is_mounted_as_it_is(host: Host) -> None:
    """A volume that was attached to an earlier machine, or made from a snapshot, is never formatted."""
    (host.root / "devices/nvme-Amazon_Elastic_Block_Store_vol0abc").write_bytes(b"XFSB" + bytes(2_000_000))

    ran = host.run("deltaworks-volume")

    assert ran.returncode == 0, ran.stderr
    assert host.calls("mkfs.xfs") == []
    assert len(host.calls("mount")) == len(host.calls("xfs_growfs")) == 1


def test_volume_with_something_else_is_left_alone(host: Host) -> None:
    """Also where its first bytes are zeros, as those of other file systems are."""
    device = host.root / "devices/nvme-Amazon_Elastic_Block_Store_vol0abc"
    device.write_bytes(bytes(1080) + b"\x53\xef" + bytes(2_000_000))

    ran = host.run("deltaworks-volume")

    assert ran.returncode == 1
    assert "not XFS" in ran.stderr
    assert host.calls("mkfs.xfs") == host.calls("mount") == []


def test_empty_device_is_not_taken_for_a_new_volume(host: Host) -> None:
    """What cannot be read is not formatted."""
    (host.root / "devices/nvme-Amazon_Elastic_Block_Store_vol0abc").touch()

    ran = host.run("deltaworks-volume")

    assert ran.returncode == 1
    assert host.calls("mkfs.xfs") == []


def test_secrets_are_files_for_the_containers_user_alone(host: Host) -> None:
    """One for each name, without a line's end, in a folder that nobody else enters."""
    host.stand_in("aws", 'while [[ $1 != --secret-id ]]; do shift; done; echo "value of $2"')

    ran = host.run("deltaworks-secrets")

    folder = host.root / "secrets"
    assert ran.returncode == 0, ran.stderr
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "reader": "value of test/reader", "shop": "value of test/shop",
    }  # fmt: skip
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o400}
    assert folder.stat().st_mode & 0o777 == 0o700


def test_secret_without_a_value_is_named(host: Host) -> None:
    """It fails, and systemd tries again."""
    host.stand_in("aws", "exit 254")

    ran = host.run("deltaworks-secrets")

    assert ran.returncode == 1
    assert "test/reader" in ran.stderr


def _packed(host: Host, name: str, files: dict[str, str]) -> str:
    """A release in the bucket, with its checksum."""
    source = host.root / f"source-{name}"
    for path, text in files.items():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_text(text)
    packed = host.root / "bucket/releases" / f"{name}.tar.gz"
    packed.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(packed, "w:gz") as archive:
        for entry in sorted(source.rglob("*")):
            archive.add(entry, entry.relative_to(source).as_posix(), recursive=False)
    return hashlib.sha256(packed.read_bytes()).hexdigest()


def _wanted(host: Host, version: str | None, sha256: str = "") -> None:
    """AWS answers that this release is wanted, and gives files of the bucket."""
    plugin = host.root / "bucket/tools/docker-compose-2"
    plugin.parent.mkdir(parents=True, exist_ok=True)
    plugin.write_text("a plugin")
    compose = {"version": "2", "sha256": hashlib.sha256(plugin.read_bytes()).hexdigest()}
    release = {"version": version, "sha256": sha256} if version else None
    (host.root / "wanted").write_text(json.dumps({"release": release, "compose": compose}))
    host.stand_in(
        "aws",
        f'if [[ $1 == ssm ]]; then cat "{host.root}/wanted"; exit; fi\n'
        f'while [[ $1 != s3://* ]]; do shift; done; cp "{host.root}/bucket/${{1#s3://files/}}" "$2"',
    )


def test_release_is_laid_out_and_started(host: Host) -> None:
    """Files lie in the project's folder, and compose is told secrets, profiles, port and place."""
    host.stand_in("docker", 'echo "$DELTAWORKS_SECRETS $COMPOSE_PROFILES $AIRFLOW_PORT" >>"$CALLS.env"')
    _wanted(host, "1", _packed(host, "1", {"docker-compose.yml": "x", "tables/gold/a/table.py": "a"}))

    ran = host.run("deltaworks-release")

    project = host.root / "data/project"
    assert ran.returncode == 0, ran.stderr
    assert (project / "tables/gold/a/table.py").read_text() == "a"
    assert host.calls("docker") == [
        f"compose --project-name deltaworks --project-directory {project} up --detach --build --remove-orphans"
    ]
    assert (host.root / "calls.env").read_text() == f"{host.root}/secrets demo 9080\n"
    assert os.access(host.root / "plugins/docker-compose", os.X_OK)


def test_next_release_takes_away_what_it_does_not_have_and_nothing_of_others(host: Host) -> None:
    """Files that are mounted in containers are written in place; those laid there by hand stay."""
    _wanted(host, "1", _packed(host, "1", {"docker-compose.yml": "x", "tables/a/table.py": "a", "topics.toml": "1"}))
    assert host.run("deltaworks-release").returncode == 0
    project = host.root / "data/project"
    (project / "note.txt").write_text("by hand")
    before = (project / "topics.toml").stat().st_ino
    _wanted(host, "2", _packed(host, "2", {"docker-compose.yml": "x", "tables/b/table.py": "b", "topics.toml": "2"}))

    ran = host.run("deltaworks-release")

    assert ran.returncode == 0, ran.stderr
    assert {path.relative_to(project).as_posix() for path in project.rglob("*") if path.is_file()} == {
        "docker-compose.yml", "tables/b/table.py", "topics.toml", "note.txt",
    }  # fmt: skip
    assert not (project / "tables/a").exists()
    assert ((project / "topics.toml").read_text(), (project / "topics.toml").stat().st_ino) == ("2", before)
    assert not list((host.root / "data").glob(".release.*"))


def test_same_release_is_fetched_once(host: Host) -> None:
    """At each start of the machine compose is asked again, and the bucket is not."""
    _wanted(host, "1", _packed(host, "1", {"docker-compose.yml": "x"}))

    ran = [host.run("deltaworks-release").returncode for _ in range(2)]

    assert ran == [0, 0]
    assert len([call for call in host.calls("aws") if call.startswith("s3 cp")]) == 2  # the plugin and the release
    assert len(host.calls("docker")) == 2


def test_release_with_another_checksum_is_refused(host: Host) -> None:
    """Nothing of it is unpacked, and nothing started."""
    _packed(host, "1", {"docker-compose.yml": "x"})
    _wanted(host, "1", "0" * 64)

    ran = host.run("deltaworks-release")

    assert ran.returncode == 1
    assert "not what was asked for" in ran.stderr
    assert list((host.root / "data/project").iterdir()) == []
    assert host.calls("docker") == []


def test_release_without_a_compose_file_is_refused(host: Host) -> None:
    """One that was packed with a folder around it, say."""
    _wanted(host, "1", _packed(host, "1", {"deltaworks/docker-compose.yml": "x"}))

    ran = host.run("deltaworks-release")

    assert ran.returncode == 1
    assert "no docker-compose.yml" in ran.stderr
    assert host.calls("docker") == []


def test_no_release_yet_is_no_error(host: Host) -> None:
    """The first apply makes the bucket, so there can be none."""
    _wanted(host, None)

    ran = host.run("deltaworks-release")

    assert ran.returncode == 0, ran.stderr
    assert "none is wanted yet" in ran.stdout
    assert host.calls("docker") == []


def _platform(host: Host, apps: Any, ledger: Any, *, code: int = 0) -> None:
    """The command line answers this."""
    host.stand_in("aws")
    (host.root / "apps").write_text(json.dumps(apps))
    (host.root / "ledger").write_text(json.dumps(ledger))
    host.stand_in(
        "deltaworks", f'[[ $1 == ledger ]] && cat "{host.root}/ledger" || cat "{host.root}/apps"\nexit {code}'
    )


def _put(host: Host) -> dict[str, str]:
    fields = [word for call in host.calls("aws") for word in call.split() if word.startswith("MetricName=")]
    pairs = [dict(part.split("=") for part in field.split(",")) for field in fields]
    return {pair["MetricName"]: pair["Value"] for pair in pairs}


def test_a_platform_that_is_well_puts_zeros(host: Host) -> None:
    """All five numbers, in the environment's namespace."""
    _platform(host, _WELL, _BALANCED)

    ran = host.run("deltaworks-metrics")

    assert ran.returncode == 0, ran.stderr
    assert _put(host) == dict.fromkeys((*_OF_APPS, "Unbalanced"), "0")
    assert all("--namespace Deltaworks/test" in call for call in host.calls("aws"))


def test_what_is_not_well_is_counted(host: Host) -> None:
    """The command line ends with 1 then, which is an answer."""
    states = ("behind", "suspended", "stuck", "dead", "failed", "stopped")
    apps = [{"state": state, "broken": state in ("suspended", "behind")} for state in states]
    _platform(host, apps, [{"balanced": False}], code=1)

    ran = host.run("deltaworks-metrics")

    assert ran.returncode == 0, ran.stderr
    assert _put(host) == {"Behind": "1", "Suspended": "1", "Broken": "2", "Unwell": "3", "Unbalanced": "1"}


@pytest.mark.parametrize(
    ("apps", "ledger", "code", "put"),
    [
        (_WELL, _BALANCED, 3, set()),
        ([], _BALANCED, 0, {"Unbalanced"}),
        (_WELL, [{}], 0, _OF_APPS),
        ("nothing", "nothing", 0, set()),
    ],
    ids=["no answer", "no app", "no verdict", "no list"],
)
def test_what_is_not_known_is_not_put(host: Host, apps: Any, ledger: Any, code: int, put: set[str]) -> None:
    """Its alarm rises because data is missing; zeros would say that all is well."""
    _platform(host, apps, ledger, code=code)

    ran = host.run("deltaworks-metrics")

    assert ran.returncode == 1
    assert set(_put(host)) == put


@pytest.mark.parametrize(
    "other",
    [{"state": "starting", "broken": None}, {"state": "healthy"}],
    ids=["not counted yet", "an earlier release"],
)
def test_broken_rules_are_told_when_all_apps_know_them(host: Host, other: dict[str, Any]) -> None:
    """Before, that number alone is not put."""
    _platform(host, [*_WELL, other], _BALANCED)

    ran = host.run("deltaworks-metrics")

    assert ran.returncode == 0, ran.stderr
    assert set(_put(host)) == {*_OF_APPS, "Unbalanced"} - {"Broken"}


def test_alarms_are_about_metrics_that_the_host_puts(host: Host) -> None:
    """By the same names."""
    _platform(host, _WELL, _BALANCED)
    host.run("deltaworks-metrics")
    alarms = (SOURCE / "modules/alarms/main.tf").read_text()

    watched = {line.split('"')[1] for line in alarms.splitlines() if line.strip().startswith("metric  ")}

    assert {name for name in watched if name[0].isupper()} == set(_put(host))
