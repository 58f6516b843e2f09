"""Apps and what a person wants of them."""

import dataclasses
import difflib
from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from deltaworks.control.database import Database, Shape
from deltaworks.errors import ControlError

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

    def desire(self, app: str, desired: Desired, *, by: str) -> App:
        """Say what is wanted of an app; who and when change only if what is wanted changes."""
        wish = """
            update apps set desired = %(desired)s,
                desired_by = case when desired = %(desired)s then coalesce(desired_by, %(by)s) else %(by)s end,
                desired_at = case when desired = %(desired)s then desired_at else now() end
            where name = %(app)s returning {columns}"""
        wished = self._one(wish, {"app": app, "desired": desired, "by": by}, _APP)
        if wished is None:
            raise self._unknown(app)
        return wished

    def _unknown(self, app: str) -> ControlError:
        names = [known.name for known in self.apps()]
        near = difflib.get_close_matches(app, names, n=1)
        known = f'Did you mean "{near[0]}"' if near else f"Known are {', '.join(names) or 'none'}"
        return ControlError(f"app {app}", 'never declared ("deltaworks up" declares the apps of tables/)', known)
