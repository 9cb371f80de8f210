"""A real IMAP server for tests: Dovecot of the system's packages, started as root with a home of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from console.embedded.child import free_port
from tests.hands import until
from tests.stack import short_home

PASSWORD = "a-password-of-tests"
CONFIG = """
base_dir = {home}/run
state_dir = {home}/state
log_path = {home}/log
protocols = imap
listen = 127.0.0.1
ssl = no
disable_plaintext_auth = no
mail_location = maildir:{home}/mail
default_internal_user = dovecot
default_login_user = dovenull
first_valid_uid = 1
{capability}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
passdb {{
  driver = static
  args = password={password}
}}
userdb {{
  driver = static
  args = uid=nobody gid=nogroup home={home}
}}
"""


def required() -> None:
    """Skip where there is no such server; in CI, where it is installed, its absence is a failure."""
    if shutil.which("dovecot") is None or os.geteuid() != 0:
        why = "needs Dovecot and root: apt-get install -y dovecot-imapd"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)


@contextmanager
def imap_server(*, idle: bool = True) -> Iterator[tuple[int, Path]]:
    """The port of a running server, and the folder of its mails; a mailbox whose folder is removed is made anew."""
    required()
    with short_home() as home:
        (home / "mail").mkdir()
        shutil.chown(home / "mail", "nobody", "nogroup")
        port = free_port()
        capability = "" if idle else "imap_capability = IMAP4rev1"
        config = home / "dovecot.conf"
        config.write_text(CONFIG.format(home=home, port=port, password=PASSWORD, capability=capability))
        server = subprocess.Popen(
            ["dovecot", "-F", "-c", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        try:
            until(lambda: _answers(port) or server.poll() is not None, "the IMAP server")
            assert server.poll() is None, server.stderr.read() if server.stderr else ""
            yield port, home / "mail"
        finally:
            server.terminate()
            server.communicate(timeout=20)


def _answers(port: int) -> bool:
    import socket

    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as line:
            return line.recv(4) == b"* OK"
    except OSError:
        return False
