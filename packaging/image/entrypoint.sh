#!/bin/sh
# As the images of Redis and Valkey: options or a configuration file alone mean the server; root gives its
# rights away and the data directory to the server's user.
set -e

if [ $# -eq 0 ] || [ "${1#-}" != "$1" ] || [ "${1%.conf}" != "$1" ]; then
    set -- iolite "$@"
fi
case "$1" in
iolite | redis-server | valkey-server)
    if [ "$(id -u)" = 0 ]; then
        find . \! -user iolite -exec chown iolite:iolite {} + 2>/dev/null || true
        exec su -s /bin/sh iolite -c 'exec "$0" "$@"' "$0" "$@"
    fi
    umask 0077
    ;;
esac
exec "$@"
