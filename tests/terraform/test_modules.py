"""Each module and environment: laid out by Terraform's own rules, valid, and as its tests with mocked providers say."""

import re
import shutil
from pathlib import Path

import pytest

from tests.terraform.program import ENVIRONMENTS, MODULES, SOURCE, Terraform, TerraformError, environment

ALL = (*MODULES, *ENVIRONMENTS)
_BLOCK = re.compile(r'^(?P<kind>variable|output) "(?P<name>\w+)" \{\n(?P<body>.*?)^\}', re.MULTILINE | re.DOTALL)
_LAST = re.compile(r"Success! (?P<passed>\d+) passed, 0 failed\.")
_RUN = re.compile(r"^run ", re.MULTILINE)


def _blocks(folder: Path, kind: str) -> dict[str, str]:
    text = "".join(path.read_text() for path in sorted((SOURCE / folder).glob("*.tf")))
    return {match["name"]: match["body"] for match in _BLOCK.finditer(text) if match["kind"] == kind}


def test_modules_and_environment_are_found() -> None:
    """Else the tests below are about nothing."""
    assert {path.name for path in MODULES} == {"network", "host", "backup", "secrets", "alarms"}
    assert [path.name for path in ENVIRONMENTS] == ["one-host"]


@pytest.mark.parametrize("folder", ALL, ids=str)
def test_folder_says_what_it_is_for_and_pins_the_provider(folder: Path) -> None:
    """main.tf begins with what it makes and why so; the provider has one version, the same everywhere."""
    pinned = (SOURCE / folder / "versions.tf").read_text()

    assert re.match(r"# [A-Z][^\n]+[.,]?\n", (SOURCE / folder / "main.tf").read_text())
    assert pinned == (SOURCE / MODULES[0] / "versions.tf").read_text()
    assert re.search(r'source  = "hashicorp/aws"\n +version = "\d+\.\d+\.\d+"', pinned)


@pytest.mark.parametrize("folder", ALL, ids=str)
def test_variables_are_typed_and_described_and_outputs_too(folder: Path) -> None:
    """Each variable says its type and what it is for, each output what it is; none is a secret."""
    variables, outputs = _blocks(folder, "variable"), _blocks(folder, "output")

    loose = [name for name, body in variables.items() if "  description = " not in body or "  type " not in body]
    silent = [name for name, body in outputs.items() if "  description = " not in body]

    assert variables
    assert outputs
    assert not loose
    assert not silent
    assert not [name for name, body in {**variables, **outputs}.items() if "sensitive" in body]


def test_environment_describes_a_variable_as_its_module_does() -> None:
    """What is handed on under the same name has one description and one default."""
    (folder,) = ENVIRONMENTS
    host, ours = _blocks(Path("modules/host"), "variable"), _blocks(folder, "variable")
    both = sorted((set(host) & set(ours)) - {"name", "namespace"})

    differ = [name for name in both if host[name].partition("\n  validation")[0].rstrip() != ours[name].rstrip()]

    assert len(both) > 5
    assert not differ


def test_layout_is_terraforms_own(work: Path) -> None:
    """`terraform fmt` would change nothing."""
    ran = Terraform(folder=work, variables=environment()).run("fmt", "-check", "-recursive", codes=(0, 3))

    assert not ran.stdout


@pytest.mark.usefixtures("work")
def test_another_layout_is_found(tmp_path: Path) -> None:
    """The check itself."""
    (tmp_path / "main.tf").write_text('locals {\na="b"\n}\n')

    ran = Terraform(folder=tmp_path, variables=environment()).run("fmt", "-check", "-recursive", codes=(0, 3))

    assert ran.stdout.split() == ["main.tf"]


@pytest.mark.parametrize("folder", ALL, ids=str)
def test_is_valid_and_passes_its_own_tests(folder: Path, work: Path) -> None:
    """`terraform validate`, and `terraform test` with mocked providers: every run that is written is run."""
    terraform = Terraform(folder=work / folder, variables=environment())
    written = sum(len(_RUN.findall(path.read_text())) for path in (work / folder).glob("tests/*.hcl"))

    terraform.run("validate")
    last = _LAST.search(terraform.run("test").stdout)

    assert written > 1
    assert last
    assert int(last["passed"]) == written


def test_a_module_that_breaks_its_promise_is_found(work: Path, tmp_path: Path) -> None:
    """The modules' own tests fail when what they are about is taken away."""
    folder = tmp_path / "secrets"
    shutil.copytree(work / "modules/secrets", folder, symlinks=True)
    text = (folder / "main.tf").read_text()
    (folder / "main.tf").write_text(text.replace("var.recovery_days", "0"))

    with pytest.raises(TerraformError, match="A secret that is deleted is gone at once"):
        Terraform(folder=folder, variables=environment()).run("test")

    assert "var.recovery_days" in text
