"""A headless Chromium, driven over WebDriver (W3C) by urllib3: no package of its own."""

import base64
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import urllib3
from gevent import socket, subprocess
from gevent.threadpool import ThreadPool

from tests.support.waiting import eventually

_PATIENCE_SECONDS = 60.0  # a small machine takes its time to start a browser
TAB = "\ue004"

_ARGUMENTS = [
    "--headless=new",
    "--no-sandbox",  # it runs as root in a build; it sees nothing but pages of ours
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--no-proxy-server",
    # No test reaches another machine.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]


REQUIRED = "NXDNS_BROWSER_REQUIRED"
"""Where this is set, in the environment, that there is no Chromium is a failure."""


def is_wanted() -> bool:
    """Whether tests that need Chromium are to run: where it is, and where it has to be."""
    return bool(
        os.environ.get(REQUIRED) or (shutil.which("chromium") and shutil.which("chromedriver"))
    )


class Browser:
    """One session: one window."""

    def __init__(self, driver: "_Driver", capabilities: dict[str, Any]) -> None:
        self._driver = driver
        started = driver.call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
        self._path = f"/session/{started['sessionId']}"

    def open(self, url: str) -> None:
        self._call("POST", "/url", {"url": url})

    def run(self, script: str, *arguments: object) -> Any:
        """What the body of a function of JavaScript returns."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def text(self, selector: str = "body") -> str:
        """What somebody who looks at the first such element reads; "" when it is not to be seen."""
        script = (
            "const e = document.querySelector(arguments[0]);"
            "return e && e.checkVisibility() ? e.innerText : '';"
        )
        return str(self.run(script, selector))

    def eventually(self, fact: Callable[[], object], *, seconds: float = 20.0) -> None:
        """Wait until ``fact()`` is true; fail with what the page shows when it never becomes so."""
        try:
            eventually(fact, seconds=seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}: the page shows {self.text()!r}") from None

    def press(self, key: str) -> None:
        """Press and release one key."""
        actions = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        source = {"type": "key", "id": "keyboard", "actions": actions}
        self._call("POST", "/actions", {"actions": [source]})

    def console(self) -> list[str]:
        """What has been said on the console as a warning or an error since the last call."""
        entries = self._call("POST", "/se/log", {"type": "browser"})
        return [e["message"] for e in entries if e["level"] in ("SEVERE", "WARNING")]

    def devtools(self, command: str, **parameters: object) -> Any:
        """One command of Chromium's own protocol, for what WebDriver has no word."""
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def resize(self, width: int, height: int) -> None:
        """Give the page exactly this size, which a window may not have."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def prefer(self, scheme: str) -> None:
        """``light`` or ``dark``."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.devtools("Emulation.setEmulatedMedia", features=features)

    def screenshot(self) -> bytes:
        """The whole page as a PNG, however long it is."""
        taken = self.devtools("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(taken["data"])

    def close(self) -> None:
        self._call("DELETE", "", None)

    def _call(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        return self._driver.call(method, self._path + path, body)


class _Driver:
    """chromedriver. Its calls run in a thread: the servers of the tests share our event loop."""

    def __init__(self, port: int) -> None:
        self._http = urllib3.HTTPConnectionPool("127.0.0.1", port, timeout=_PATIENCE_SECONDS)
        self._thread = ThreadPool(1)

    def call(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        """The value that a command of WebDriver gives."""
        response = self._thread.apply(
            self._http.request, (method, path), {"json": body, "retries": False}
        )
        value = response.json()["value"]
        assert response.status == 200, value
        return value

    def close(self) -> None:
        self._http.close()
        self._thread.kill()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


@contextmanager
def browser() -> Iterator[Browser]:
    """Chromium with an empty page."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    driver = _Driver(port)
    try:
        eventually(lambda: _listens(port), seconds=_PATIENCE_SECONDS)
        session = Browser(
            driver,
            {
                "browserName": "chrome",
                "goog:chromeOptions": {"args": _ARGUMENTS, "binary": shutil.which("chromium")},
                "goog:loggingPrefs": {"browser": "ALL"},
            },
        )
        try:
            yield session
        finally:
            session.close()
    finally:
        process.terminate()
        process.wait()
        driver.close()
