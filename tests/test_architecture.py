"""Imports run downwards only, the pure files are pure, and nothing is monkey-patched."""

import ast
import graphlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "nxdns"


def dotted(path: Path) -> str:
    """The name under which a file of the package is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {dotted(path): path for path in sorted(PACKAGE.rglob("*.py"))}

LAYERS: dict[str, set[str]] = {
    "dns": set(),
    "platform": {"dns"},
    "snapshots": set(),
    # The pool describes itself in the frozen types that surfaces read.
    "upstream": {"dns", "platform", "snapshots"},
    "storage": set(),
    "server": {"dns", "platform", "upstream"},
    "web": {"snapshots"},
    "config": {"dns", "platform", "upstream", "storage", "server", "snapshots"},
    "owner": {"dns", "upstream"},
    "upstreams": {"platform", "upstream", "config"},
    "counters": set(),
    "late_web": {"platform", "web"},
    "reloads": {"snapshots"},
    "overview": {"counters", "platform", "owner", "reloads", "server", "storage", "snapshots"},
}
"""What the modules of each folder may import of ours, besides their own folder."""

# Units and the log are below what does the work. The wire core needs neither, and what only holds
# things imports nothing of ours, so that it can be read alone.
for _layer in LAYERS.keys() - {"dns", "snapshots", "storage"}:
    LAYERS[_layer] |= {"units", "logs"}
LAYERS |= {"units": set(), "logs": {"units"}}

# The composition root knows everything; still the application does not know its command line.
LAYERS["app"] = set(LAYERS)
LAYERS["cli"] = set(LAYERS)
LAYERS["__main__"] = {"cli"}

PURE = {
    *(name for name in MODULES if name.startswith("nxdns.dns")),
    "nxdns.platform.address",
    "nxdns.platform.rtnetlink",
    "nxdns.platform.tls_records",
    "nxdns.server.allow",
    "nxdns.upstream.depth",
    "nxdns.upstream.endpoint",
    "nxdns.upstream.errors",
    "nxdns.upstream.exchange",
    "nxdns.upstream.health",
    "nxdns.upstream.pipeline",
    "nxdns.upstream.retry",
    "nxdns.upstream.rider",
    "nxdns.upstream.validate",
    "nxdns.snapshots",
    "nxdns.web.advice",
    "nxdns.web.fault_words",
    "nxdns.web.head",
    "nxdns.web.listener_notes",
    "nxdns.web.notes",
    "nxdns.web.upstream_notes",
    "nxdns.units",
}

ENUMERATIONS = {"dns.flags", "dns.opcode", "dns.rcode", "dns.rdataclass", "dns.rdatatype"}
"""dnspython's; its other modules do I/O, or import one that does."""

IMPURE = {
    *{"asyncio", "http", "io", "os", "select", "selectors", "signal", "socket", "socketserver"},
    *{"ssl", "subprocess", "tempfile", "threading", "multiprocessing", "concurrent", "urllib"},
    *{"datetime", "time", "sched"},
    *{"random", "secrets", "uuid"},
    *{"logging", "warnings"},
}
"""Modules of the standard library that are I/O, a clock, randomness or a log."""


def imports(source: str) -> Iterator[str]:
    """Everything that ``source`` imports, at its top or not: "a.b", or "a.b.c" of from a.b."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{a.name}" for a in node.names)


def imported_by(name: str) -> set[str]:
    return set(imports(MODULES[name].read_text(encoding="utf-8")))


def is_within(name: str, module: str) -> bool:
    """Whether ``name`` is ``module`` or something in it."""
    return f"{name}.".startswith(f"{module}.")


def ours(name: str) -> set[str]:
    """The modules of this package that the module ``name`` imports."""
    found = set()
    for target in imported_by(name):
        parts = target.split(".")
        prefixes = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
        found.update(next(([module] for module in prefixes if module in MODULES), []))
    return found


def folder(name: str) -> str:
    """The place of a module in LAYERS; of the package itself, ""."""
    return name.split(".")[1] if "." in name else ""


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imports_only_from_folders_above_its_own(name: str) -> None:
    layer = folder(name)
    allowed = LAYERS[layer] | {layer} if layer else set()
    for module in ours(name):
        assert not folder(module) or folder(module) in allowed, module


@pytest.mark.parametrize("name", [name for name in MODULES if folder(name) == "server"])
def test_the_server_knows_an_upstream_only_as_a_transport(name: str) -> None:
    known = {module for module in ours(name) if folder(module) == "upstream"}
    assert known <= {"nxdns.upstream.transport"}


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = {name: ours(name) - {name} for name in MODULES}
    graphlib.TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("name", [name for name in MODULES if folder(name) == "dns"])
def test_the_wire_core_imports_only_the_standard_library_and_enumerations(name: str) -> None:
    for target in imported_by(name):
        assert (
            is_within(target, "nxdns.dns")
            or target.split(".")[0] in sys.stdlib_module_names
            or any(is_within(target, enumeration) for enumeration in ENUMERATIONS)
        ), target


@pytest.mark.parametrize("name", sorted(PURE))
def test_a_pure_file_has_no_socket_clock_randomness_or_log(name: str) -> None:
    foreign = {target for target in imported_by(name) if not is_within(target, "nxdns")}
    if name == "nxdns.upstream.errors":
        foreign.discard("greenlet.GreenletExit")  # what a cancellation is; it does nothing
    for target in foreign:
        top = target.split(".")[0]
        assert top not in IMPURE, target
        assert top in sys.stdlib_module_names or any(
            is_within(target, enumeration) for enumeration in ENUMERATIONS
        ), target


@pytest.mark.parametrize("name", sorted(PURE))
def test_a_pure_file_imports_only_pure_files_of_ours(name: str) -> None:
    assert ours(name) <= PURE


@pytest.mark.parametrize("name", sorted({name.rpartition(".")[0] for name in PURE}))
def test_a_package_with_pure_files_brings_nothing_along(name: str) -> None:
    # Python runs it before any module in it.
    assert imported_by(name) == set()


@pytest.mark.parametrize("name", MODULES)
def test_imports_are_absolute_and_never_shadow_dnspython(name: str) -> None:
    targets = imported_by(name)
    assert not {target for target in targets if target.startswith(".")}
    assert "nxdns.dns" not in targets  # from nxdns import dns: another dns than dnspython's


@pytest.mark.parametrize("name", MODULES)
def test_no_module_is_a_script_too(name: str) -> None:
    # A script's folder is the first place its imports are looked for: ours has a dns in it.
    if name != "nxdns.__main__":
        assert "__main__" not in MODULES[name].read_text(encoding="utf-8")


LAUNCHERS = [path for path in sorted((ROOT / "bin").glob("*")) if path.is_file()]


@pytest.mark.parametrize("path", [*MODULES.values(), *LAUNCHERS], ids=lambda path: path.name)
def test_nothing_is_monkey_patched(path: Path) -> None:
    for target in imports(path.read_text(encoding="utf-8")):
        assert not is_within(target, "gevent.monkey")


@pytest.mark.parametrize(
    ("source", "target"),
    [
        pytest.param("import gevent.monkey as m", "gevent.monkey", id="import-as"),
        pytest.param("from gevent import socket, monkey", "gevent.monkey", id="from-package"),
        pytest.param("from a.b import c as d", "a.b.c", id="from-as"),
        pytest.param("def f():\n    import time", "time", id="within-a-function"),
        pytest.param("if TYPE_CHECKING:\n    import time", "time", id="for-the-type-checker"),
        pytest.param("try:\n    import ssl\nexcept E:\n    pass", "ssl", id="within-a-try"),
        pytest.param("from . import name", "..name", id="relative"),
        pytest.param("from .name import skip", ".name.skip", id="relative-module"),
    ],
)
def test_every_way_to_import_is_seen(source: str, target: str) -> None:
    assert target in set(imports(source))


def test_the_pure_files_and_the_layers_are_all_there() -> None:
    assert set(MODULES) >= PURE
    assert {folder(name) for name in MODULES} - {""} <= set(LAYERS)
