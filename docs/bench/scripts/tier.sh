#!/bin/bash
# Ten times maxmemory and more: loaded, served, saved, killed, started again, with a tier. Then all values out of memory.
#   SERVER=target/release/iolite KEYS=300000 MAX=45mb docs/bench/scripts/tier.sh
set -u
server=${SERVER:-target/release/iolite} keys=${KEYS:-300000} max=${MAX:-45mb} port=${PORT:-22010}
dir=$(mktemp -d)
trap 'kill -9 $pid 2>/dev/null; rm -rf "$dir"' EXIT

cli() { redis-cli -p "$port" "$@"; }
start() {
    "$server" --port "$port" --dir "$dir" --tier-path . --tier-compression no --save "" --threads 2 "$@" >>"$dir/log" 2>&1 &
    pid=$!
    until [ "$(cli ping 2>/dev/null)" = PONG ]; do sleep 0.1; done
}
status() { cli tier status | paste - - | grep -E "$1"; }
memory() {
    cli info memory | grep -E "^used_memory:|^used_memory_peak:"
    grep -E "VmHWM|RssAnon|RssFile" "/proc/$pid/status"
}

start --maxmemory "$max" --durability os
echo "== empty"; memory
"$server" bench -p "$port" -c 8 -P 32 -t set -d 1024 -r "$keys" -n "$keys" --sequential --no-progress | tail -4
echo "== loaded"; cli dbsize; status .; memory; cli info stats | grep evicted_keys
time cli save
du -sb "$dir"/iolite-data/checkpoint-*; grep -c ^segment "$dir/iolite-data/MANIFEST"
"$server" bench -p "$port" -c 64 -P 16 -t get -r "$keys" --duration 8 --no-progress | tail -5
status "reads|keys"
kill -9 "$pid"; wait "$pid" 2>/dev/null
echo "== killed, started again"
time start --maxmemory "$max" --durability os
cli dbsize; status "reads|keys|state"; memory
kill -9 "$pid"; wait "$pid" 2>/dev/null
rm -rf "$dir"/iolite-data "$dir"/tier

echo "== all values out of memory"
start --maxmemory 20mb --tier-demote-at 1 --durability none
cli info memory | grep ^used_memory:
"$server" bench -p "$port" -c 4 -P 32 -t set -d 1024 -r 200000 -n 200000 --sequential --no-progress >/dev/null
sleep 5
status "keys|state|writes|raw|live"; memory
