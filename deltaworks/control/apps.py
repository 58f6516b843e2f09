"""Apps and what a person wants of them."""

import dataclasses
import difflib
import uuid
from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from deltaworks.control.database import Database, Shape
from deltaworks.control.payload import storable_text
from deltaworks.errors import CommandError, ControlError

Desired = Literal["running", "stopped"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class App:
    """One app: what is wanted of it, who wants it (None: nobody has said yet) and since when."""

    name: str
    desired: Desired
    desired_by: str | None
    desired_at: datetime


_APP = Shape(App, "name, desired, desired_by, desired_at")


class Apps(Database):
    """The desired state of each app."""

    def declare_apps(self, names: Iterable[str]) -> None:
        """Make apps known; new ones are wanted `stopped`. Known ones stay as they are, and none is taken away."""
        declare = """
            insert into apps (name) select unnest(%(names)s::text[]) on conflict do nothing returning {columns}"""
        self._all(declare, {"names": list(names)}, _APP)

    def apps(self) -> list[App]:
        """List every app that was ever declared, by name."""
        return self._all("select {columns} from apps order by name", {}, _APP)

    def app(self, name: str) -> App:
        """Return one app; raises ControlError if it was never declared."""
        found = self._one("select {columns} from apps where name = %(name)s", {"name": name}, _APP)
        if found is None:
            raise self._unknown(name)
        return found

    def desire(
        self, app: str, desired: Desired, *, by: str, reason: str, kind: str | None = None,
        call: uuid.UUID | None = None,
    ) -> App:  # fmt: skip
        """Say what is wanted of an app; who and when change only if what is wanted changes.

        It is on record as an order that is done, of the kind `start` or `stop` if no other is given, with who and why;
        also where it changed nothing. `call`: given again under the same one it is the same wish, and changes nothing.
        """
        kind = kind or ("start" if desired == "running" else "stop")
        answered_for(kind, by=by, reason=reason)
        wish = """
            with told as (
                insert into commands (app, kind, arguments, state, result, requested_by, reason, started_at,
                    finished_at, call)
                select name, %(kind)s, '{{}}', 'done', jsonb_build_object('was', desired), %(by)s, %(reason)s, now(),
                    now(), %(call)s
                from apps where name = %(app)s
                on conflict (call) do nothing returning id
            ), wished as (
                update apps set desired = %(desired)s,
                    desired_by = case when desired = %(desired)s then coalesce(desired_by, %(by)s) else %(by)s end,
                    desired_at = case when desired = %(desired)s then desired_at else now() end
                where name = %(app)s and exists (select from told) returning {columns}
            )
            select {columns} from wished
            union all select {columns} from apps where name = %(app)s and not exists (select from wished)"""
        values = {"app": app, "desired": desired, "kind": kind, "call": call or uuid.uuid4()}
        values |= {"by": storable_text(by), "reason": storable_text(reason)}
        wished = self._one(wish, values, _APP)
        if wished is None:
            raise self._unknown(app)
        return wished

    def _unknown(self, app: str) -> ControlError:
        names = [known.name for known in self.apps()]
        near = difflib.get_close_matches(app, names, n=1)
        known = f'Did you mean "{near[0]}"' if near else f"Known are {', '.join(names) or 'none'}"
        return ControlError(f"app {app}", 'never declared ("deltaworks up" declares the apps of tables/)', known)


def answered_for(kind: str, *, by: str, reason: str) -> None:
    """Raise CommandError for an order for which nobody answers, or without a reason."""
    for name, text in (("by", by), ("reason", reason)):
        if not text.strip():
            raise CommandError(f"command {kind}", f"{name} is empty", "Say who wants it and why")
