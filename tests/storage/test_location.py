"""Where the file of episodes is."""

import pytest

from nxdns.storage.location import locate


@pytest.mark.parametrize(
    ("configured", "state_directory", "path"),
    [
        ("/srv/events.db", "/var/lib/nxdns", "/srv/events.db"),
        ("", "/var/lib/nxdns", "/var/lib/nxdns/events.db"),
        ("", "/var/lib/nxdns:/var/lib/other", "/var/lib/nxdns/events.db"),
        ("", "", ""),
        ("", None, ""),
    ],
)
def test_the_configured_path_comes_first_then_systemds_folder_then_memory(
    monkeypatch: pytest.MonkeyPatch, configured: str, state_directory: str | None, path: str
) -> None:
    if state_directory is None:
        monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    else:
        monkeypatch.setenv("STATE_DIRECTORY", state_directory)
    assert locate(configured) == path
