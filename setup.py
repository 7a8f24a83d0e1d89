"""Packaging. Ranges are what should work; requirements.txt is the set that was tested.

With NXDNS_COMPILE=1 in the environment, the path of a query is compiled by mypyc, from the same
source; that takes a C compiler and Python's headers. Without, everything is interpreted.
"""

import os
import re
import sys
from pathlib import Path
from typing import Any

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(
    r'^__version__ = "(.+)"$', (HERE / "nxdns/__init__.py").read_text(), re.MULTILINE
)
if VERSION is None:
    raise SystemExit("nxdns/__init__.py has no __version__")

COMPILE = os.environ.get("NXDNS_COMPILE", "0") == "1"
# For these nothing is compiled. A build asks the first what it needs, which is answered by
# build_backend.py, and there is no compiler before.
WITHOUT = {"egg_info", "sdist"}

if not COMPILE and any(HERE.glob("nxdns/**/*.so")):
    raise SystemExit(
        "compiled libraries lie beside the source, and would run in its place: "
        "remove nxdns/**/*.so, or set NXDNS_COMPILE=1"
    )

# What a query passes. Its classes reach into one another without a lookup only when all of them
# are compiled together; the rest of nxdns is entered rarely, and gains nothing.
COMPILED = [
    "nxdns/dns/edns.py",
    "nxdns/dns/framing.py",
    "nxdns/dns/header.py",
    "nxdns/dns/hop.py",
    "nxdns/dns/name.py",
    "nxdns/dns/packet.py",
    "nxdns/dns/question.py",
    "nxdns/dns/records.py",
    "nxdns/dns/reply.py",
    "nxdns/owner.py",
    "nxdns/platform/tls_calls.py",
    "nxdns/platform/tls_events.py",
    "nxdns/platform/tls_records.py",
    "nxdns/platform/tls_stream.py",
    "nxdns/server/allow.py",
    "nxdns/server/datagrams.py",
    "nxdns/server/handler.py",
    "nxdns/server/workers.py",
    "nxdns/upstream/attempt.py",
    "nxdns/upstream/deadlines.py",
    "nxdns/upstream/depth.py",
    "nxdns/upstream/dot_client.py",
    "nxdns/upstream/dot_session.py",
    "nxdns/upstream/dot_site.py",
    "nxdns/upstream/entry.py",
    "nxdns/upstream/episodes.py",
    "nxdns/upstream/exchange.py",
    "nxdns/upstream/health.py",
    "nxdns/upstream/histogram.py",
    "nxdns/upstream/history.py",
    "nxdns/upstream/pipeline.py",
    "nxdns/upstream/pool.py",
    "nxdns/upstream/retry.py",
    "nxdns/upstream/rider.py",
    "nxdns/upstream/slots.py",
    "nxdns/upstream/validate.py",
]

REQUIRED = [
    "gevent>=25.4",
    "dnspython>=2.6",
    "urllib3>=2.2,<3",
    "pyOpenSSL>=25.1",
    "prometheus-client>=0.20",
    "service-identity>=24.1",
]

compiled: dict[str, Any] = {}
if COMPILE and not WITHOUT & set(sys.argv):
    from mypyc.build import mypycify

    compiled = {"ext_modules": mypycify(COMPILED, group_name="nxdns.compiled")}

setup(
    name="nxdns",
    version=VERSION[1],
    description="A DNS forwarder for a household: DoT and DoH upstreams, quick, safe and visible",
    long_description=(HERE / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.11",
    packages=find_packages(include=["nxdns", "nxdns.*"]),
    package_data={"nxdns": ["py.typed"], "nxdns.web": ["page/*"]},
    # pip puts them beside the bin/ that holds the command, where --config looks for the first.
    data_files=[
        (
            "etc",
            [
                "etc/nxdns.toml",
                "etc/nxdns.service",
                "etc/nxdns-alerts.yml",
                "etc/grafana-dashboard.json",
            ],
        ),
    ],
    entry_points={"console_scripts": ["nxdns = nxdns.cli:run"]},
    install_requires=REQUIRED,
    extras_require={
        "test": ["pytest>=8", "pytest-timeout>=2.3", "hypothesis>=6.100", "trustme>=1.1"],
        "fuzz": ["atheris>=2.3"],
        "dev": ["ruff==0.17.6", "mypy==2.4.1"],
    },
    **compiled,
)
