"""How the Kafka node is started, with a script in place of the node. The node itself: tests/stack/test_broker.py."""

import subprocess
import sys
from pathlib import Path

import pytest

from deltaworks.settings import ROOT

LEADS = "WARN QuorumController [QuorumController id=1] Performing controller activation."
DECLARED = "INFO ReplicationControlManager Fencing broker 1 at epoch 11 because its session has timed out."
NODE = """#!/bin/sh
case "$*" in
*process.roles=controller*)
    echo "alone $PWD" >> "$0.calls"
    printf '%s\\n' "$SAYS"
    case "$SAYS" in *fails) exit 1 ;; *) exec sleep 60 ;; esac ;;
*) echo "node $PWD" >> "$0.calls" ;;
esac
"""
ALONE_FIRST, AT_ONCE, NEVER = ["alone", "node"], ["node"], ["alone"]


@pytest.mark.parametrize(
    ("left", "says", "called"),
    [
        ([], "", AT_ONCE),  # it never ran
        (["__cluster_metadata-0/", ".kafka_cleanshutdown"], "", AT_ONCE),
        (["__cluster_metadata-0/"], f"{LEADS}\n{DECLARED}", ALONE_FIRST),
        (["__cluster_metadata-0/"], LEADS, ALONE_FIRST),  # nobody was to be declared dead
        (["__cluster_metadata-0/"], "fails", NEVER),
        (["__cluster_metadata-0/"], f"{LEADS}\nfails", NEVER),
    ],
)
def test_controller_runs_alone_first_after_a_death(
    tmp_path: Path, left: list[str], says: str, called: list[str]
) -> None:
    """Where it does not do its work, the broker does not start over what the dead one left."""
    folder, script = tmp_path / "data" / "kafka", tmp_path / "java"
    folder.mkdir(parents=True)
    for name in left:
        (folder / name).mkdir() if name.endswith("/") else (folder / name).touch()
    script.write_text(NODE)
    script.chmod(0o700)

    module = [sys.executable, "-m", "deltaworks.local.broker"]
    command = [*module, str(folder), "CONTROLLER://127.0.0.1:1", str(script), "-x"]
    done = subprocess.run(
        command, cwd=ROOT, env={"SAYS": says}, capture_output=True, text=True, timeout=30, check=False
    )

    calls = [line.split() for line in script.with_name("java.calls").read_text().splitlines()]
    assert [who for who, _ in calls] == called
    assert {where for _, where in calls} == {str(folder.parent)}
    assert done.stdout.split() == ([] if called == AT_ONCE else says.split())
    assert (done.returncode, done.stderr) == (
        (1, "the controller alone has not declared the dead broker dead: see above; it is started again\n")
        if called == NEVER
        else (0, "")
    )
