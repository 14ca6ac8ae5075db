#!/usr/bin/env bash
# Runs NVIDIA's clients of KServe's protocol, as PyPI has them, against the real server on the CPU: tritonclient, and
# perf_analyzer where a build of it runs here. They are installed into a virtual environment of their own
# (build/kserve-venv, or $DEEPENCODER_VENV); the programs are those in $DEEPENCODER_BIN (default build/bin).
#
#   tests/integration/kserve/run.sh [unittest's arguments]
#
# Exit status: 0 passed, 1 failed, 77 no package index can be reached.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
venv=${DEEPENCODER_VENV:-$root/build/kserve-venv}
export DEEPENCODER_BIN=${DEEPENCODER_BIN:-$root/build/bin}
export PYTHONDONTWRITEBYTECODE=1
source "$root/tests/pip_install.sh"
pip=("$venv/bin/pip" -q --disable-pip-version-check)

# The versions this was written with. perf-analyzer's wheels need glibc 2.38; where it is older, the last tritonclient
# whose wheel brings the program in a build for glibc 2.34 serves, with the CUDA runtime it is linked to.
clients=(tritonclient[grpc]==2.73.0)
perf_analyzer=(perf-analyzer==2.60.0)
older_perf_analyzer=(tritonclient==2.51.0)
cuda_runtime=(nvidia-cuda-runtime-cu12==12.9.79)

wanted="${clients[*]} ${perf_analyzer[*]} ${older_perf_analyzer[*]} ${cuda_runtime[*]}"
if [ "$(cat "$venv/installed" 2>/dev/null)" != "$wanted" ]; then
  rm -rf "$venv"
  mkdir -p "$(dirname "$venv")"
  "${PYTHON:-python3}" -m venv "$venv"
  log=$venv/install.log
  pip_install kserve_clients "$venv" "${clients[@]}"
  # Without it that one test skips itself.
  if ! "${pip[@]}" install "${perf_analyzer[@]}" >>"$log" 2>&1; then
    "${pip[@]}" install --no-deps --target "$venv/older" "${older_perf_analyzer[@]}" "${cuda_runtime[@]}" >>"$log" 2>&1 ||
      echo "kserve_clients: no perf_analyzer can be installed; see $log"
  fi
  echo "$wanted" >"$venv/installed"
fi
export PATH="$venv/bin:$venv/older/bin:$PATH"
export PERF_ANALYZER_LIBRARIES="$venv/older/nvidia/cuda_runtime/lib"
exec "$venv/bin/python" "$here/clients_test.py" "$@"
