"""Generated secrets: one 0600 file each, in a folder that only we can enter. Read them with `Settings.secret`."""

import base64
import secrets
from pathlib import Path

from deltaworks.local.private import private_folder, write_private
from deltaworks.settings import Settings

_PASSWORDS = (
    "source_admin", "shop", "debezium",  # roles of the source server
    "control_admin", "deltaworks", "airflow", "serving", "reader",  # roles of the control server
    "airflow_admin", "airflow_operator", "airflow_viewer",  # users of Airflow's pages
    "airflow_jwt", "airflow_session",  # signing keys
)  # fmt: skip


def generate(settings: Settings) -> None:
    """Write every secret that is not there yet; an existing one is never changed."""
    private_folder(settings.secrets)
    for name in _PASSWORDS:
        _write_once(settings.secrets / name, secrets.token_urlsafe(32))
    _write_once(settings.secrets / "airflow_fernet", base64.urlsafe_b64encode(secrets.token_bytes(32)).decode())


def _write_once(path: Path, text: str) -> None:
    if not path.exists():
        write_private(path, text)
