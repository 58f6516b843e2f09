"""What the project's own files name: topics and apps."""

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deltaworks.findings import Finding
from deltaworks.settings import TopicSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProjectNames:
    """Topics of topics.toml and apps of deltaworks.toml; `None` where the file is missing or broken."""

    topics: Mapping[str, str] | None
    """Each topic with its clean-up policy."""
    apps: tuple[str, ...] | None


def read_project(project: Path) -> tuple[ProjectNames, list[Finding]]:
    """The names, and findings about files that are not TOML."""
    findings: list[Finding] = []
    topics = _toml(project / "topics.toml", findings)
    declared = _toml(project / "deltaworks.toml", findings)
    apps = None if declared is None else declared.get("apps", {})
    return ProjectNames(topics=_cleanups(topics), apps=_names(apps)), findings


def _cleanups(topics: dict[str, Any] | None) -> dict[str, str] | None:
    """As written, or as it is where nothing is; what else is wrong with a topic the settings say."""
    if topics is None:
        return None
    default = TopicSettings(key="").cleanup
    return {name: one.get("cleanup", default) if isinstance(one, dict) else default for name, one in topics.items()}


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
