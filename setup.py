"""Packaging. Ranges are what should work; requirements.txt is the set that was tested."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(
    r'^__version__ = "(.+)"$', (HERE / "nxdns/__init__.py").read_text(), re.MULTILINE
)
if VERSION is None:
    raise SystemExit("nxdns/__init__.py has no __version__")

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
    install_requires=[
        "gevent>=25.4",
        "dnspython>=2.6",
        "urllib3>=2.2,<3",
        "pyOpenSSL>=25.1",
        "prometheus-client>=0.20",
        "service-identity>=24.1",
    ],
    extras_require={
        "test": ["pytest>=8", "pytest-timeout>=2.3", "hypothesis>=6.100", "trustme>=1.1"],
        "fuzz": ["atheris>=2.3"],
        "dev": ["ruff==0.17.6", "mypy==2.4.1"],
    },
)
