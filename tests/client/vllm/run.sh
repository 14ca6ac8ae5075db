#!/usr/bin/env bash
# Tests client/vllm and client/sglang: installs them with the Python client from this checkout into a virtual environment
# ($DEEPENCODER_VENV, default build/vllm-client-venv), then runs light/. The test against the real server needs the programs
# in $DEEPENCODER_BIN (default build/bin).
#
#   DEEPENCODER_TEST_VLLM=1 tests/client/vllm/run.sh     also wheel/: against vLLM's and SGLang's own code, from PyPI
#
# That downloads about 4 GB (7 GB installed: PyTorch, both wheels) into $DEEPENCODER_WHEELS (default build/vllm-wheels), once, and
# needs Python 3.10 to 3.13. Ends with a line of counts. Exit status: 0 passed, 1 failed, 77 no package index can be
# reached.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
venv=${DEEPENCODER_VENV:-$root/build/vllm-client-venv}
wheels=${DEEPENCODER_WHEELS:-$root/build/vllm-wheels}
export DEEPENCODER_BIN=${DEEPENCODER_BIN:-$root/build/bin}
export DEEPENCODER_TEST_DATA=$root/tests/data
export PYTHONDONTWRITEBYTECODE=1

source "$root/tests/pip_install.sh"

# Installed again only where the sources have changed.
sources=$(cd "$root" && find client/python client/vllm client/sglang proto -type f \( -name '*.py' -o -name '*.toml' \
  -o -name '*.md' -o -name '*.proto' \) | LC_ALL=C sort | xargs sha256sum | sha256sum)
if [ "$(cat "$venv/sources" 2>/dev/null)" != "$sources" ]; then
  rm -rf "$venv"
  mkdir -p "$(dirname "$venv")"
  "${PYTHON:-python3}" -m venv "$venv"
  pip_install vllm_client "$venv" "$root/client/python[pillow]" "$root/client/vllm" "$root/client/sglang"
  echo "$sources" >"$venv/sources"
fi
status=0
"$venv/bin/python" "$here/run.py" "$here/light" "$here/../sglang/light" || status=1

if [ "${DEEPENCODER_TEST_VLLM:-}" = 1 ]; then
  mkdir -p "$wheels"
  [ -x "$wheels/venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$wheels/venv"
  pip_install vllm_client "$wheels/venv" -r "$here/requirements.txt"
  checked() { "$venv/bin/python" -c "import $1; print($1.$2[-1])"; }
  for package in "vllm==$(checked deepencoder_vllm CHECKED_VLLM)" \
                 "sglang==$(checked deepencoder_sglang CHECKED_SGLANG)" smg-grpc-proto; do
    [ -e "$wheels/$package/done" ] && continue
    "$wheels/venv/bin/pip" download -q --no-deps -d "$wheels/$package" "$package"
    (cd "$wheels/$package" && "$wheels/venv/bin/python" -m zipfile -e ./*.whl . && rm ./*.whl && touch done)
  done
  echo "vllm_client: against $(cd "$wheels" && echo vllm==* sglang==*)"
  for folder in "$here/wheel" "$here/../sglang/wheel"; do
    PYTHONPATH=$root/client/vllm/src:$root/client/sglang/src:$(echo "$wheels"/vllm==*):$(echo "$wheels"/sglang==*):$wheels/smg-grpc-proto \
      "$wheels/venv/bin/python" "$here/run.py" "$folder" || status=1
  done
else
  echo "vllm_client: wheel/ left out: DEEPENCODER_TEST_VLLM=1 runs it against vLLM's and SGLang's own code"
fi
exit $status
