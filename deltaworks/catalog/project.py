"""What the project's own files name: topics and apps."""

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

from deltaworks.findings import Finding


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProjectNames:
    """Topics of topics.toml and apps of deltaworks.toml; `None` where the file is missing or broken."""

    topics: tuple[str, ...] | None
    apps: tuple[str, ...] | None


def read_project(project: Path) -> tuple[ProjectNames, list[Finding]]:
    """The names, and findings about files that are not TOML."""
    findings: list[Finding] = []
    topics = _toml(project / "topics.toml", findings)
    declared = _toml(project / "deltaworks.toml", findings)
    apps = None if declared is None else declared.get("apps", {})
    return ProjectNames(topics=_names(topics), apps=_names(apps)), findings


def _names(values: dict[str, Any] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(sorted(values))


def _toml(path: Path, findings: list[Finding]) -> dict[str, Any] | None:
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        findings.append(Finding(place=path.name, finding=str(error), next_step="Mend the file"))
        return None
