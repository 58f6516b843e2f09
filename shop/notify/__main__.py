"""Command line of the consumer group: python -m shop.notify."""

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from deltaworks.cli.show import err, listing, out
from deltaworks.errors import DeltaworksError, StackError
from deltaworks.settings import Settings
from shop.notify.channels import Channel, Mail, TemporaryError, Webhook
from shop.notify.delivery import Delivery
from shop.notify.member import Member
from shop.notify.records import Records

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
_Id = Annotated[str, typer.Argument(help="As listed.")]


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What stands before the command."""

    settings: Settings
    group: str
    name: str
    webhook: str | None
    smtp: str | None

    def records(self) -> Records:
        return Records(self.settings.serving_dsn(), group=self.group, name=f"shop.notify {self.name}")

    def channels(self) -> Sequence[Channel]:
        if self.webhook is None or self.smtp is None:
            raise typer.BadParameter("say where to with --webhook and --smtp, before the command")
        host, _, port = self.smtp.rpartition(":")
        if not host or not port.isdecimal():
            raise typer.BadParameter("--smtp takes HOST:PORT")
        try:
            return Webhook(self.webhook), Mail(host, int(port))
        except ValueError:
            raise typer.BadParameter("--webhook takes http://... or https://...") from None


@app.callback(invoke_without_command=True)
def member(
    context: typer.Context,
    webhook: Annotated[str | None, typer.Option(help="URL to post each confirmation to.")] = None,
    smtp: Annotated[str | None, typer.Option(help="HOST:PORT of the mail server.")] = None,
    group: Annotated[str, typer.Option(help="Members share partitions, and what was told.")] = "order-confirmations",
    name: Annotated[str | None, typer.Option("--member", help="Who this is; default: machine and process.")] = None,
    project: Annotated[Path | None, typer.Option(help="Folder with deltaworks.toml.")] = None,
) -> None:
    """Tell customers and a webhook of placed orders, as a member of a consumer group; leaves it at Ctrl-C.

    A message is acknowledged when both have it, or it is a dead letter. With a command: look at those of the group.
    """
    own = name or f"{socket.gethostname()}-{os.getpid()}"
    settings = Settings.load(project)
    context.obj = asked = _Asked(settings=settings, group=group, name=own, webhook=webhook, smtp=smtp)
    if context.invoked_subcommand is not None:
        return
    channels, stopping = asked.channels(), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    _log_to_stderr()
    with asked.records() as records:
        delivery = Delivery(channels=channels, records=records)
        Member(bootstrap=asked.settings.kafka, group=group, name=own, delivery=delivery).run(stopping)


@app.command()
def list_dead(
    context: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False
) -> None:
    """List what could not be delivered: by which channel (`all`: the message itself is at fault), why, its place."""
    with context.obj.records() as records:
        found = records.dead()
    rows: list[dict[str, object]] = [
        {"id": one.id, "channel": one.channel, "reason": one.reason, "place": one.letter.place}
        | ({"failed_at": one.failed_at} if as_json else {})  # no room for it on a terminal
        for one in found
    ]
    listing(rows, title="Dead letters", as_json=as_json, empty="none")


@app.command()
def retry_dead(context: typer.Context, ids: Annotated[list[str], typer.Argument(help="As listed.")]) -> None:
    """Deliver dead letters again, after their cause was mended. Exit code 1 if one stays."""
    channels = context.obj.channels()
    with context.obj.records() as records:
        _require(ids, {one.id for one in records.dead(ids)})
        delivery = Delivery(channels=channels, records=records)
        for key in dict.fromkeys(ids):
            try:
                delivery.retry(key)
            except TemporaryError as error:
                out.print(f"{key}: not now ({error})", markup=False, soft_wrap=True)
        left = records.dead(ids)
    for one in left:
        out.print(f"{one.id}: still dead by {one.channel}, {one.reason}", markup=False, soft_wrap=True)
    out.print(f"{len({*ids} - {one.id for one in left})} delivered")
    raise typer.Exit(1 if left else 0)


@app.command()
def discard_dead(
    context: typer.Context, key: _Id, reason: Annotated[str, typer.Option(help="Stays on record, with the id.")]
) -> None:
    """Decide that a dead letter is not to be delivered; its content is deleted."""
    with context.obj.records() as records:
        _require([key], [key] if records.discard(key, reason) else [])
    out.print(f"{key}: discarded", markup=False, soft_wrap=True)


def _require(ids: Sequence[str], found: Sequence[str] | set[str]) -> None:
    for key in ids:
        if key not in found:
            raise StackError(f"dead letter {key}", "there is none", "See list-dead")


def _log_to_stderr() -> None:
    logging.Formatter.converter = time.gmtime
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")


def run() -> None:
    """Run the command line; exit codes: 0 ok, 1 a letter stays dead, 2 usage, 3 cannot."""
    try:
        app(prog_name="python -m shop.notify")
    except DeltaworksError as error:
        err.print(str(error), style="red", soft_wrap=True, markup=False)
        sys.exit(3)


if __name__ == "__main__":
    run()
