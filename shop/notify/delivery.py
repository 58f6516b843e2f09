"""One message told by every channel, once by each as far as anybody here can know."""

import logging
import traceback
from collections.abc import Collection, Sequence
from pathlib import Path

from shop.notify.channels import Channel, RefusedError, TemporaryError
from shop.notify.confirmation import Letter, MalformedError, read
from shop.notify.records import ALL, Records

log = logging.getLogger("shop.notify")


class Delivery:
    """The channels, and the records of what they have done."""

    def __init__(self, *, channels: Sequence[Channel], records: Records) -> None:
        """Keep them."""
        self._channels, self._records = channels, records

    def deliver(self, letter: Letter, *, again: Collection[str] = ()) -> None:
        """Tell by each channel that has not settled the letter, and record each as soon as it has.

        What is refused for good becomes a dead letter, and the next channel goes on; `again` names the channels whose
        dead letter is tried once more. Raises TemporaryError after all channels when one of them may do better later,
        and StackError when the records are away: then call it again.
        """
        settled = {
            channel
            for channel, delivered in self._records.settled(letter.name).items()
            if delivered or channel not in again
        }
        todo = () if ALL in settled else [channel for channel in self._channels if channel.name not in settled]
        if not todo:
            log.info("%s came again and is settled", letter.name)
            return
        try:
            confirmation = read(letter)
        except MalformedError as error:
            self._bury(letter, ALL, str(error))
            return
        failures = []
        for channel in todo:
            try:
                channel.tell(letter.name, confirmation)
            except TemporaryError as error:
                failures.append(f"{channel.name}: {error}")
            except RefusedError as error:
                self._bury(letter, channel.name, str(error))
            except Exception as error:  # noqa: BLE001  # else the message would end each member that takes it over
                self._bury(letter, channel.name, _unexpected(error))
            else:
                self._records.record(letter.name, channel.name)
        if failures:
            raise TemporaryError(", ".join(failures))
        if ALL in again:
            self._records.lift(letter.name, ALL)

    def retry(self, key: str) -> None:
        """Deliver a dead letter again. One that is no more on the list was settled meanwhile. Raises as `deliver`."""
        if dead := self._records.dead([key]):
            self.deliver(dead[0].letter, again={one.channel for one in dead})

    def _bury(self, letter: Letter, channel: str, reason: str) -> None:
        self._records.bury(letter, channel, reason)
        log.warning("%s at %s is a dead letter of %s: %s", letter.name, letter.place, channel, reason)


def _unexpected(error: Exception) -> str:
    """A defect of ours: what and where. Its text may hold a personal value."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"unexpected {type(error).__name__} in {Path(last.filename).name}:{last.lineno}"
