#!/usr/bin/env bash
# Tests the Python client: installs it from this checkout into a virtual environment of its own (build/python-client-venv,
# or $DEEPENCODER_VENV), then runs the tests here. Those against the real server need the programs in $DEEPENCODER_BIN
# (default build/bin) and skip themselves without.
#
#   tests/client/python/run.sh [unittest's arguments]
#
# Ends with a line of counts. Exit status: 0 passed, 1 failed, 77 skipped: no virtual environment can be made, or no
# package index can be reached.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
venv=${DEEPENCODER_VENV:-$root/build/python-client-venv}
export DEEPENCODER_BIN=${DEEPENCODER_BIN:-$root/build/bin}
export PYTHONDONTWRITEBYTECODE=1
# gRPC reports refused handshakes, which are wanted here.
export GRPC_VERBOSITY=NONE
source "$root/tests/pip_install.sh"

# Installed again only where the sources have changed.
sources=$(cd "$root" && find client/python proto -type f \( -name '*.py' -o -name '*.toml' -o -name '*.md' -o -name '*.proto' \) |
  LC_ALL=C sort | xargs sha256sum | sha256sum)
if [ "$(cat "$venv/sources" 2>/dev/null)" != "$sources" ]; then
  rm -rf "$venv"
  mkdir -p "$(dirname "$venv")"
  if ! "${PYTHON:-python3}" -m venv "$venv" >"$venv.log" 2>&1; then
    cat "$venv.log"
    echo "python_client: skipped: ${PYTHON:-python3} -m venv failed"
    exit 77
  fi
  pip_install python_client "$venv" "$root/client/python[test]"
  echo "$sources" >"$venv/sources"
fi
cd "$here"
exec "$venv/bin/python" run.py "$@"
