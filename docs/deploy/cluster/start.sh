#!/bin/sh
# Starts a cluster of 3 or 6 nodes on this machine, at ports 7001 and up; `stop` ends it and removes its files.
# Needs iolite (or IOLITE=path).
set -eu
iolite=${IOLITE:-iolite}
files=${TMPDIR:-/tmp}/iolite-cluster

stop() {
    for pid in "$files"/*/pid; do
        [ -f "$pid" ] || continue
        # Who was killed has left its file.
        kill "$(cat "$pid")" 2>/dev/null || rm -f "$pid"
        while [ -f "$pid" ]; do sleep 0.1; done
    done
    rm -rf "$files"
}

case "${1:-}" in
stop) stop; exit ;;
3) ports="7001 7002 7003"; replicas=0 ;;
6) ports="7001 7002 7003 7004 7005 7006"; replicas=1 ;;
*) echo "usage: $0 3|6|stop" >&2; exit 2 ;;
esac

addresses=
for port in $ports; do
    mkdir -p "$files/$port"
    "$iolite" --port "$port" --dir "$files/$port" --cluster-enabled yes --daemonize yes \
        --pidfile "$files/$port/pid" --logfile "$files/$port/log"
    addresses="$addresses 127.0.0.1:$port"
done
for port in $ports; do
    until grep -q 'Ready to accept' "$files/$port/log" 2>/dev/null; do sleep 0.1; done
done
# shellcheck disable=SC2086 -- one word for each address
"$iolite" cluster create $addresses --replicas "$replicas"
