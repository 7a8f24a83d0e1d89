#!/bin/bash
# The life of the service, told for the tests of test_service.py: each part under a heading of its
# own. Runs in a machine that boot.sh has booted.
set -u
cd /
unset NOTIFY_SOCKET

part() { printf '\n== %s\n' "$1"; }

show() { systemctl show nxdns --property="$1" --value; }

# Wait, for at most 20 s, until a command succeeds.
until_true() {
    for _ in {1..200}; do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    echo "never came true: $*"
}

ask() { dig +tries=1 +timeout=5 "$@" www.example.com A | grep -E 'status:|^www|no servers' | tr '\n' ' '; echo; }

is() { [ "$(show "$1")" = "$2" ]; }

is_not() { [ "$(show "$1")" != "$2" ]; }

status_has() { show StatusText | grep -qF "$1"; }

# A configuration with one upstream, at the port of the one in /run/$1.
configure() {
    cat >/etc/nxdns/nxdns.toml <<CONFIG
[server]
listen = ["127.0.0.1:53", "[::1]:53"]
[[upstreams]]
name = "$1"
url = "tls://127.0.0.1:$(cat "/run/$1/port")"
tls_name = "dot.test"
[health]
base_backoff_ms = 60000
[tls]
ca_file = "ca.pem"
CONFIG
    cp "/run/$1/ca.pem" /etc/nxdns/ca.pem
    chmod 644 /etc/nxdns/*
}

start_upstream() {
    systemd-run --quiet --unit="upstream-$1" /opt/nxdns/bin/python /srv/tests/upstream.py "/run/$1"
    until_true test -e "/run/$1/port"
}

part installed
bash -eux /srv/install/commands 2>&1
ls -l /opt/nxdns/bin/nxdns /etc/nxdns/nxdns.toml /etc/systemd/system/nxdns.service
nxdns version

part verified
systemd-analyze verify /etc/systemd/system/nxdns.service 2>&1
echo "status $?"

part enabled
systemctl enable --quiet nxdns
systemctl is-enabled nxdns

part the-shipped-file
/opt/nxdns/bin/python -c '
import sys
from pathlib import Path
from nxdns.config import load
load(Path(sys.argv[1]))' /etc/nxdns/nxdns.toml && echo "is valid"

start_upstream one
start_upstream two

part a-secret-file
configure one
bash -eux /srv/install/secret 2>&1
systemctl start nxdns && ask @127.0.0.1
ls -l /etc/nxdns/nxdns.toml
systemctl stop nxdns
rm -r /etc/systemd/system/nxdns.service.d
systemctl daemon-reload

part a-wrong-file
echo 'listen = 5' >/etc/nxdns/nxdns.toml
systemctl start nxdns
echo "start said $?"
until_true is ActiveState failed
show Result
show ExecMainStatus
show NRestarts
systemctl reset-failed nxdns

part a-taken-port
configure one
systemd-run --quiet --unit=taker /opt/nxdns/bin/python -c '
import socket, time
taken = socket.socket()
taken.bind(("127.0.0.1", 53))
taken.listen()
open("/run/taken", "w").close()
time.sleep(600)'
until_true test -e /run/taken
systemctl start --no-block nxdns
until_true is_not NRestarts 0
show ActiveState
systemctl stop taker
# It tries again each second, and so comes by itself.
until_true is ActiveState active
ask @127.0.0.1
systemctl stop nxdns

part started
configure one
systemctl start nxdns
echo "start said $?"
ask @127.0.0.1
ask @127.0.0.1 +tcp
ask @::1
ask @::1 +tcp
for property in ActiveState SubState NRestarts StatusText; do show $property; done

part tried
nxdns check
nxdns burst --server 127.0.0.1:53 | tail -1

part confined
pid=$(show MainPID)
grep -E '^(Uid|NoNewPrivs|Seccomp|Cap[A-Z][a-z]+):' "/proc/$pid/status"
systemctl show nxdns --property=DynamicUser

part sees-what-the-metrics-need
inode_of() { readlink /proc/$pid/fd/* | grep -o 'socket:\[[0-9]*\]' | tr -dc '0-9\n'; }
nsenter --target "$pid" --mount cat /proc/net/udp >/run/udp
inode_of | while read -r inode; do grep -w "$inode" /run/udp; done | grep -c ':0035 '
nsenter --target "$pid" --mount grep -c btime /proc/stat

part episode
systemctl stop upstream-one
ask @127.0.0.1
ask @127.0.0.1
ask @127.0.0.1
until_true eval 'nxdns episodes | grep -q "1 open"'
nxdns episodes
ls -ld /var/lib/nxdns
stat --format='%a %U' /var/lib/private/nxdns
setpriv --reuid=65534 --clear-groups nxdns episodes 2>&1
echo "status $?"

part reloaded
configure two
before=$(show MainPID)
systemctl reload nxdns
echo "reload said $?"
until_true status_has 'upstreams two'
until_true is ActiveState active
show StatusText
ask @127.0.0.1
until_true eval 'nxdns episodes | grep -q "0 open"'
nxdns episodes
[ "$(show MainPID)" = "$before" ] && echo "the same process"

part reloaded-in-vain
echo '[budgets]' >>/etc/nxdns/nxdns.toml
echo 'attempt_ms = "soon"' >>/etc/nxdns/nxdns.toml
systemctl reload nxdns
until_true status_has 'the last reload failed'
until_true is ActiveState active
show StatusText
ask @127.0.0.1
[ "$(show MainPID)" = "$before" ] && echo "the same process"
journalctl --unit=nxdns --output=cat | grep ERROR
configure two
systemctl reload nxdns
until_true eval '! systemctl show nxdns --property=StatusText | grep -q failed'
show StatusText

part crashed
kill -SEGV "$before"
until_true is NRestarts 1
until_true is ActiveState active
[ "$(show MainPID)" = "$before" ] || echo "another process"
ask @127.0.0.1
show StatusText

part updated
before=$(show MainPID)
bash -eux /srv/install/update 2>&1
[ "$(show MainPID)" = "$before" ] || echo "another process"
ask @127.0.0.1

part stopped
systemctl stop nxdns
echo "stop said $?"
for property in ActiveState Result ExecMainStatus; do show $property; done
ask @127.0.0.1
# What it has stored is still to be read, by root.
nxdns episodes | tail -1

part names
# The host of a DoH upstream is looked up in the confinement, too.
echo '127.0.0.1 doh.test' >>/etc/hosts
printf '[server]\nlisten = ["127.0.0.1:53"]\n[[upstreams]]\nurl = "https://doh.test:1"\n[log]\nlevel = "debug"\n' >/etc/nxdns/nxdns.toml
systemctl start nxdns
ask @127.0.0.1
until_true eval 'journalctl --unit=nxdns --output=cat | grep -q "attempt failed"'
journalctl --unit=nxdns --output=cat | grep 'attempt failed' | tail -1
systemctl stop nxdns

part the-end
journalctl --unit=nxdns --output=cat | grep -c Traceback
journalctl --unit=nxdns --output=cat | grep -c 'does not tell the prefixes'
exit 0
