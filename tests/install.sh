#!/usr/bin/env bash
# Installs the servers and tools that the tests run against, where they are missing and this user may install them.
set -euo pipefail

needed=()
[ -x /usr/sbin/mariadbd ] || command -v mariadbd >/dev/null 2>&1 || needed+=(mariadb-server)
# Sessions in a container: an engine, a runtime for any version of control groups, and what makes a root file system.
command -v podman >/dev/null 2>&1 || needed+=(podman)
[ -x /usr/sbin/runc ] || command -v runc >/dev/null 2>&1 || needed+=(runc)
[ -x /usr/sbin/debootstrap ] || needed+=(debootstrap)
# The pages are tested in a browser.
command -v chromium >/dev/null 2>&1 || needed+=(chromium)
[ ${#needed[@]} -gt 0 ] || exit 0

sudo=()
[ "$(id -u)" = 0 ] || sudo=(sudo -n)
if ! command -v apt-get >/dev/null 2>&1 || ! "${sudo[@]}" true 2>/dev/null; then
  echo "The tests want: ${needed[*]}. They could not be installed from here; the tests that need them will say so."
  exit 0
fi
echo "installing for the tests: ${needed[*]}"
"${sudo[@]}" apt-get update -qq
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${needed[@]}" >/dev/null
