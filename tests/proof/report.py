"""What was tried and what was found: for people in Markdown, for programs in JSON."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One run of an app: in peace, or through deaths; no findings is what is promised."""

    app: str
    path: str
    how: str
    places: tuple[str, ...]
    seconds: float
    findings: tuple[str, ...]

    def __str__(self) -> str:
        """One line, and one more for each finding."""
        told = (
            f"{'FOUND' if self.findings else 'ok':<6}{self.app:<6}{self.path:<6}{self.how:<10}{self.seconds:5.1f} s  "
        )
        return "\n      ".join((told + ", then ".join(self.places), *self.findings))


@dataclass(kw_only=True)
class Proof:
    """All of it. The seed draws the rows and the places again."""

    seed: int
    tried: list[Tried] = field(default_factory=list)

    @property
    def findings(self) -> int:
        """How many in all."""
        return sum(len(one.findings) for one in self.tried)

    def count(self, how: str) -> int:
        """How many runs of a kind."""
        return sum(one.how == how for one in self.tried)

    def summary(self) -> str:
        """One line."""
        deaths = f"{self.count('exception')} deaths by exception, {self.count('power cut')} by power cut"
        told = f"{deaths}, {self.count('kill -9')} kills, {self.findings} findings"
        return f"seed {self.seed}: {told}"


def write(proof: Proof, folder: Path) -> Path:
    """Write both forms under the seed's name; returns the one for people."""
    folder.mkdir(parents=True, exist_ok=True)
    data = {"seed": proof.seed, "findings": proof.findings, "tried": [asdict(one) for one in proof.tried]}
    (folder / f"proof-{proof.seed}.json").write_text(json.dumps(data, indent=2) + "\n")
    page = folder / f"proof-{proof.seed}.md"
    page.write_text("\n".join(_lines(proof)) + "\n")
    return page


def _lines(proof: Proof) -> list[str]:
    head = ["# Proof", "", proof.summary(), "", "Every line is a run over the same rows; a death is step, point, time."]
    table = ["", "| app | path | how | deaths | seconds | verdict |", "| --- | --- | --- | --- | --- | --- |"]
    for one in proof.tried:
        places = ", then ".join(f"`{place}`" for place in one.places)
        verdict = "; ".join(one.findings).replace("|", "\\|") or "ok"
        table.append(f"| {one.app} | {one.path} | {one.how} | {places} | {one.seconds:.1f} | {verdict} |")
    return [*head, *table]
