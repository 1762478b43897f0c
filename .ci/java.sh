#!/bin/sh
# Java for Spark, where packages can be installed.
set -eu
export DEBIAN_FRONTEND=noninteractive
test "$(id -u)" = 0 && command -v apt-get >/dev/null
apt-get update -qq
apt-get install -qq -y openjdk-17-jre-headless || apt-get install -qq -y default-jre-headless
