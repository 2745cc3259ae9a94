"""A store's address, and the password in it (case H6)."""

from __future__ import annotations

import contextlib
import os
import pickle
import time
from pathlib import Path

import pytest
from sqlalchemy import URL, make_url

from slime_store.config import StoreConfig, refuse_address
from slime_store.errors import InvalidUrlError

PASSWORD = "p@ss%2F"


def test_h6_an_awkward_password_is_kept_and_never_shown() -> None:
    url = URL.create("postgresql+psycopg", "me", PASSWORD, "db.example", 5432, "runs")
    for config in (StoreConfig.parse(url), StoreConfig.parse("postgresql://me:p%40ss%252F@db.example:5432/runs")):
        assert config.sqlalchemy_url.password == PASSWORD
        again = pickle.loads(pickle.dumps(config))
        assert again == config and again.sqlalchemy_url.password == PASSWORD
        for shown in (repr(config), str(config), config.display_url):
            assert PASSWORD not in shown and "p%40ss" not in shown
            assert "***" in shown


@pytest.mark.parametrize("option", ["password", "sslpassword", "passfile", "sslkey", "oauth_client_secret"])
def test_h6_secrets_in_the_query_are_kept_and_never_shown(option: str) -> None:
    config = StoreConfig.parse(f"postgresql+psycopg://h/db?{option}=p%40ss%252F&sslmode=require")
    assert config.sqlalchemy_url.query[option] == PASSWORD
    for shown in (repr(config), config.display_url, config.without_secrets(f"bad {PASSWORD} in {config.url}")):
        assert PASSWORD not in shown and "p%40ss" not in shown
        assert "***" in shown
    assert f"{option}=***" in config.display_url and "sslmode=require" in config.display_url


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_postgresql_is_reached_by_psycopg_3(scheme: str) -> None:
    assert StoreConfig.parse(f"{scheme}://host/db").sqlalchemy_url.drivername == "postgresql+psycopg"


def test_a_path_is_an_sqlite_file_and_absolute_from_now_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for target in ("runs.db", Path("runs.db"), "sqlite:///runs.db", tmp_path / "runs.db"):
        config = StoreConfig.parse(target)
        monkeypatch.chdir("/")
        assert config.path == tmp_path / "runs.db"
        assert config.is_sqlite and not config.is_memory
        assert config.display_url == str(tmp_path / "runs.db")
        monkeypatch.chdir(tmp_path)
    assert StoreConfig.parse("~/runs.db").path == Path(os.path.expanduser("~/runs.db"))


@pytest.mark.parametrize("name", ["a b.db", "a%20b.db", "a#b.db", "a@b:c.db", "ü.db", "a'b.db"])
def test_a_file_name_is_never_read_as_anything_but_a_name(tmp_path: Path, name: str) -> None:
    assert StoreConfig.parse(tmp_path / name).path == tmp_path / name


@pytest.mark.parametrize("target", [":memory:", "sqlite://", "sqlite:///:memory:"])
def test_an_in_memory_store_has_no_path(target: str) -> None:
    config = StoreConfig.parse(target)
    assert config.is_memory and config.path is None
    assert "memory" in config.display_url


@pytest.mark.parametrize(
    "target",
    ["", "a\0b", "mysql://host/db", "postgresql+psycopg2://host/db", "sqlite+aiosqlite:///x.db", "sqlite:///x.db?a=b",
     "postgresql://host:port/db", "://"],
)  # fmt: skip
def test_what_names_no_store_is_refused(target: str) -> None:
    with pytest.raises(InvalidUrlError):
        StoreConfig.parse(target)


def test_a_refused_address_shows_no_password() -> None:
    for target in ("mysql://me:hidden-word@host/db", "postgresql+psycopg2://me:hidden-word@host/db",
                   "postgresql://me:hidden-word@host:port/db", "mysql://host/db?password=hidden-word",
                   "postgresql+psycopg2://host/db?sslpassword=hidden-word", "postgresql://me:hidden-word@host/db\0",
                   "sqlite:///x.db?key=hidden-word", URL.create("sqlite", query={"key": "hidden-word"})):  # fmt: skip
        with pytest.raises(InvalidUrlError) as caught:
            StoreConfig.parse(target)
        assert "hidden-word" not in str(caught.value) + repr(caught.value)


def test_an_address_with_bytes_that_are_no_text_is_refused_and_shows_no_password() -> None:
    odd = "\udcff"
    for address in (f"postgresql://u:hidden-word{odd}@h/db", f"postgresql://u{odd}:hidden-word@h/db",
                    f"postgresql://u:hidden-word@h{odd}/db", f"postgresql://u:hidden-word@h/db{odd}",
                    f"postgresql://u:hidden-word@h/db?a={odd}", f"postgresql://u:hidden-word@h/db?a{odd}=1",
                    f"sqlite:///x?key=hidden-word{odd}", f"mysql://u:hidden-word{odd}@h/db",
                    "postgresql://u:hidden-word@a..b/db", "postgresql://u:hidden-word@h/db?host=a..b",
                    URL.create("postgresql", "u", f"hidden-word{odd}", "h"),
                    URL.create("postgresql", "u", "hidden-word", f"h{odd}"),
                    URL.create("sqlite", query={"key": f"hidden-word{odd}"})):  # fmt: skip
        with pytest.raises(InvalidUrlError) as caught:
            StoreConfig.parse(address)
        assert "hidden-word" not in str(caught.value) + repr(caught.value)
    assert StoreConfig.parse("postgresql://u@h\xfc,b.c/db?host=/" + "a" * 80).url.endswith("a")


@pytest.mark.parametrize("option", ["plugin", "row_factory"])
def test_an_option_that_no_server_is_told_is_refused(option: str) -> None:
    with pytest.raises(InvalidUrlError, match=f"{option} is no option"):
        StoreConfig.parse(f"postgresql://host/db?{option}=x")


def test_an_address_that_lacks_a_slash_is_no_file_and_shows_no_password() -> None:
    for address in ("postgresql+psycopg:/u:hunter2@host/db", "postgres:u:hunter2@host/db",
                    "postgresql+psycopg//u:hunter2@host/db"):  # fmt: skip
        with pytest.raises(InvalidUrlError, match="two slashes") as error:
            StoreConfig.parse(address)
        assert "hunter2" not in str(error.value)


def test_half_of_a_password_with_an_at_sign_is_not_taken_for_the_host() -> None:
    for address in ("postgresql://u:first@second@host/db",
                    "postgresql://u:first@second/three@host/db",
                    "postgresql://u:fir/st@second?x@host/db",
                    make_url("postgresql://u:first@second@host/db")):  # fmt: skip
        with pytest.raises(InvalidUrlError) as error:
            StoreConfig.parse(address)
        assert "second" not in str(error.value) and "fir" not in str(error.value)
    assert StoreConfig.parse("postgresql://u:first%40second@host/db").display_url.endswith("://u:***@host/db")
    assert "hidden" not in StoreConfig.parse("postgresql://host/db?conninfo=password%3Dhidden").display_url


def test_an_address_is_no_file_where_a_file_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    parts = "postgresql+psycopg://u:hunter2@h/db", "u:hunter2@h/db", "host=h password=hunter2", "//u:hunter2@h/db"
    for address in parts:
        with pytest.raises(InvalidUrlError) as error:
            refuse_address(address)
        assert "hunter2" not in str(error.value)
        refuse_address(f"./{address}")
        refuse_address(Path(address))
    for name in ("out/{rollout_id}.pt", "a:b@c d.jsonl", "-", "run@5:1.pt", "C:/x.pt", "/data/a:b@c/d.pt"):
        refuse_address(name)


@pytest.mark.parametrize(
    "address",
    [
        "host=h port=1 password=S3cret",
        "password = 'S3 cret' host=h",
        "@h password=S3cret",
        'service=x password="S3 cret" host=h',
        "password=S3cret host=",
        "host=/var/run sslpassword=S3cret",
        "h/db?user=me&password=S3cret",
        "server=h;PASSWD=S3cret",
        "u:S3cret@h/db",
        "//u:S3cret@h/db",
        "postgresql+psycopg//u:S3cret@h/db",
        ":S3cret@h",
    ],
)
def test_h6_a_servers_address_in_another_form_is_not_taken_for_a_file(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The password would be the file's name."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidUrlError) as caught:
        StoreConfig.parse(address)
    assert "S3" not in str(caught.value) and "postgresql+psycopg://" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "password='x'" + " a='x'" * 50_000 + " !",
        "a:" * 50_000,
        "password " * 50_000,
        "a" * 200_000,
        " " * 200_000 + "@",
    ],
)
def test_an_address_is_read_in_time_whatever_it_is(text: str) -> None:
    started = time.process_time()
    with contextlib.suppress(InvalidUrlError):
        StoreConfig.parse(text)
    assert time.process_time() - started < 2


@pytest.mark.parametrize("name", ["exp:lr1@2.db", "password=x"])
def test_a_file_that_is_there_or_is_said_to_be_one_may_have_such_a_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for target in (Path(name), f"{tmp_path}/{name}", f"./{name}"):
        assert StoreConfig.parse(target).path == tmp_path / name
    with pytest.raises(InvalidUrlError):
        StoreConfig.parse(name)
    (tmp_path / name).touch()
    assert StoreConfig.parse(name).path == tmp_path / name
