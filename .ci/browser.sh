#!/bin/sh
# Chromium and GDAL for tests of the page and of what other programs read, where packages can be installed.
set -eu
export DEBIAN_FRONTEND=noninteractive
[ "$(id -u)" = 0 ] || exit 1
apt-get update -qq
apt-get install -qq -y --no-install-recommends chromium gdal-bin
