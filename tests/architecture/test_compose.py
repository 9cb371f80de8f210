"""The compose file and the image hold together: no engine is at hand here, so all that can be read is checked."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from console.cli import cli
from workers.settings import VARIABLES, Settings, load

from .tree import CODE, ROOT

FILE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
OURS = {name: service for name, service in SERVICES.items() if service.get("image") == "twelvefold"}
ONCE = {name for name, service in SERVICES.items() if service["restart"] == "no"}
KEYS = {
    "build", "cap_drop", "command", "configs", "depends_on", "environment", "healthcheck", "image", "init", "ports",
    "read_only", "restart", "secrets", "security_opt", "stop_grace_period", "tmpfs", "user", "volumes",
}  # fmt: skip
SETTINGS = {VARIABLES.get(name, f"TWELVEFOLD_{name.upper()}") for name in Settings.model_fields}
MAKE = ["make", "--silent", "-f", str(ROOT / "Makefile"), "secrets"]
EVERY = pytest.mark.parametrize("name", sorted(SERVICES))
EACH_OF_OURS = pytest.mark.parametrize("name", sorted(OURS))


def plain(text: str) -> str:
    """A value as compose hands it on: `${NAME:-default}` with nothing set, `$$` as one dollar."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(text)).replace("$$", "$")


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make secrets` writes."""
    home = tmp_path_factory.mktemp("compose")
    subprocess.run(MAKE, cwd=home, check=True, capture_output=True)
    return home / "secrets"


def test_the_services_are_those_of_the_production_shape() -> None:
    lanes = {"worker-answers", "worker-steps", "worker-delivery"}
    assert set(SERVICES) == {"postgres", "redis", "migrate", "http", "api", *lanes, "flower", "mail-in", "stand-ins"}
    assert sorted(ONCE) == ["migrate"]


@EVERY
def test_a_service_has_a_known_shape_an_image_and_a_way_to_tell_that_it_is_well(name: str) -> None:
    service = SERVICES[name]
    assert set(service) <= KEYS
    assert service["image"] and service["restart"] in ("no", "unless-stopped")
    if name not in ONCE:
        assert {"test", "interval", "timeout", "retries"} <= set(service["healthcheck"])
        assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")


@EVERY
def test_whoever_is_waited_for_exists_and_can_come_to_what_is_waited_for(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        assert other in SERVICES
        wanted = "service_completed_successfully" if other in ONCE else "service_healthy"
        assert how == {"condition": wanted}


@EVERY
def test_only_http_is_published_beyond_this_machine(name: str) -> None:
    ports = SERVICES[name].get("ports", [])
    assert all(port.startswith("127.0.0.1:") for port in ports) or (name == "http" and ports == ["8080:8080"])


@EVERY
def test_what_is_mounted_is_declared(name: str) -> None:
    service = SERVICES[name]
    assert set(service.get("secrets", [])) <= set(FILE["secrets"])
    assert {mount["source"] for mount in service.get("configs", [])} <= set(FILE["configs"])
    assert {mount.partition(":")[0] for mount in service.get("volumes", [])} <= set(FILE["volumes"])
    for variable, value in service.get("environment", {}).items():
        if variable.endswith("_FILE") and plain(value).startswith("/run/secrets/"):
            assert plain(value).removeprefix("/run/secrets/") in service["secrets"]
    told = yaml.safe_dump(service) + "".join(
        FILE["configs"][m["source"]]["content"] for m in service.get("configs", [])
    )
    assert set(re.findall(r"/run/secrets/(\w+)", told)) <= set(service.get("secrets", []))


@EACH_OF_OURS
def test_a_command_is_a_verb_with_options_that_it_has(name: str) -> None:
    verbs: Any = typer.main.get_command(cli)
    verb, *options = OURS[name]["command"]
    verbs.commands[verb].make_context(verb, [*options])


@EACH_OF_OURS
def test_our_processes_are_locked_in(name: str) -> None:
    service = OURS[name]
    assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["init"]
    assert "no-new-privileges:true" in service["security_opt"]


@EACH_OF_OURS
def test_the_environment_is_what_the_settings_read_and_makes_good_settings(name: str, secrets: Path) -> None:
    given = OURS[name].get("environment", {})
    names = {
        variable.removesuffix("_FILE") if variable.removesuffix("_FILE") in SETTINGS else variable for variable in given
    }
    assert names - SETTINGS <= {"FLOWER_BASIC_AUTH_FILE"}
    if not given:
        return
    here = {key: plain(value).replace("/run/secrets", str(secrets)) for key, value in given.items()}
    settings = load(here)
    assert settings.openai_api_key is None, "an empty key is no key"
    if name.startswith("worker"):
        assert settings.smtp_host == "stand-ins" and settings.services == {"pipeline": "http://stand-ins:8025/pipeline"}
        assert settings.live_file is not None and str(settings.live_file) in OURS[name]["healthcheck"]["test"][1]


def test_make_secrets_writes_every_secret_and_keeps_what_is_there(secrets: Path) -> None:
    wanted = {Path(secret["file"]).name for secret in FILE["secrets"].values()}
    assert {path.name for path in secrets.iterdir()} == wanted
    before = {path.name: path.read_text() for path in secrets.iterdir()}
    (secrets / "flower_login").write_text("ann:own\n")
    subprocess.run(MAKE, cwd=secrets.parent, check=True, capture_output=True)
    after = {path.name: path.read_text() for path in secrets.iterdir()}
    assert after == before | {"flower_login": "ann:own\n"}
    assert secrets.stat().st_mode & 0o777 == 0o700
    owner, app = before["owner_password"].strip(), before["app_password"].strip()
    assert owner != app and len(owner) == 64 and re.fullmatch("[0-9a-f]+", owner)
    assert app in before["database_url"] and owner in before["owner_database_url"]


def test_redis_keeps_what_it_has_and_evicts_nothing() -> None:
    assert "--appendonly yes" in SERVICES["redis"]["command"]
    assert "--maxmemory-policy noeviction" in SERVICES["redis"]["command"]


def test_no_secret_stands_in_the_file() -> None:
    for service in SERVICES.values():
        for variable, value in service.get("environment", {}).items():
            secret = re.search("PASSWORD|SECRETS|DATABASE_URL|BROKER_URL|API_KEY|BASIC_AUTH", variable)
            assert not secret or variable.endswith("_FILE") or plain(value) == ""


def test_the_image_holds_all_code_and_runs_as_nobody_special() -> None:
    copied = set(re.findall(r"^COPY (\w+)/ ", DOCKERFILE, re.MULTILINE))
    assert copied == {*CODE, "migrations", "prompts"}
    sent = (ROOT / ".dockerignore").read_text(encoding="utf-8")
    assert set(re.findall(r"^!(\w+)$", sent, re.MULTILINE)) == copied
    assert re.findall(r"^USER (\d+)$", DOCKERFILE, re.MULTILINE) == ["10001"]
    assert "--require-hashes" in DOCKERFILE and "PYTHONUNBUFFERED=1" in DOCKERFILE


def test_what_the_image_holds_is_enough(tmp_path: Path) -> None:
    for folder in re.findall(r"^COPY (\w+)/ ", DOCKERFILE, re.MULTILINE):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    code = "import console.cli, console.web, workers.registry as r; print(*r.load('agents').loaded)"
    here = {"PATH": os.defpath, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    told = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=here, capture_output=True, text=True)
    assert (told.returncode, told.stdout.strip()) == (0, "deploy"), told.stderr[-2000:]
