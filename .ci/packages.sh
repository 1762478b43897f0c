#!/bin/sh
# Programs that some tests need, where Debian's packages can be installed.
set -eu
export DEBIAN_FRONTEND=noninteractive
[ "$(id -u)" = 0 ] || exit 1
apt-get update -qq
apt-get install -qq -y --no-install-recommends "$@"
