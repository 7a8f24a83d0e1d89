"""The web server that comes when its address does."""

import errno

import gevent
import pytest

from nxdns import late_web
from nxdns.late_web import LateWeb
from nxdns.platform.address import ListenAddress
from nxdns.web.server import WebServer
from tests.support.leaks import greenlets_alive, no_descriptor_left
from tests.support.overviews import ScriptedSource
from tests.support.waiting import eventually
from tests.support.web_client import get

pytestmark = pytest.mark.integration

LISTEN = ListenAddress("127.0.0.1", 0)


class House:
    """What becomes of a server that can be bound only after some tries."""

    def __init__(self, *errors: int) -> None:
        self.tries = 0
        self.told: list[WebServer] = []
        self._errors = list(errors)
        self.web = LateWeb(LISTEN, self._bind, self.told.append)

    def _bind(self) -> WebServer:
        self.tries += 1
        if self._errors:
            raise OSError(self._errors.pop(0), "it cannot be had")
        return WebServer(LISTEN.host, LISTEN.port, ScriptedSource(), ())


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried again all the time."""
    monkeypatch.setattr(late_web, "RETRY_SECONDS", 0.001)


def test_one_that_can_be_bound_answers_from_the_start_and_is_not_told_of() -> None:
    with no_descriptor_left():
        house = House()
        assert house.web.server is not None
        house.web.start()
        assert get(house.web.server, "/api/health").status == 200
        house.web.stop()
    assert (house.tries, house.told) == (1, [])


def test_one_that_cannot_is_tried_again_and_told_once_for_each_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "nxdns")
    with no_descriptor_left():
        house = House(*[errno.EADDRNOTAVAIL] * 3, *[errno.EACCES] * 3)
        assert not house.web.server
        house.web.start()
        eventually(lambda: house.told)
        [server] = house.told
        assert server is house.web.server
        assert get(server, "/api/health").status == 200
        house.web.stop()
    assert house.tries == 7
    assert [record.getMessage() for record in caplog.records] == [
        f"no web server on {LISTEN}: this machine does not have that address",
        f"no web server on {LISTEN}: ports below 1024 need root or CAP_NET_BIND_SERVICE",
        f"web server on {LISTEN}",
    ]


@pytest.mark.parametrize("end", [LateWeb.give_up, LateWeb.stop])
def test_it_is_not_tried_again_after_the_end(end: object) -> None:
    with no_descriptor_left():
        alive = greenlets_alive()
        house = House(*[errno.EADDRNOTAVAIL] * 1000)
        house.web.start()
        eventually(lambda: house.tries > 3)
        assert callable(end)
        end(house.web)
        tries = house.tries
        gevent.sleep(0.02)
        assert house.tries == tries
        assert house.web.server is None
        house.web.stop()
        eventually(lambda: greenlets_alive() <= alive)
