#!/bin/sh
# Java for Spark, where packages can be installed.
set -eu
export DEBIAN_FRONTEND=noninteractive
[ "$(id -u)" = 0 ] || exit 1
apt-get update -qq
apt-get install -qq -y openjdk-17-jre-headless || apt-get install -qq -y default-jre-headless
