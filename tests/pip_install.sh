# Sourced by the tests that need packages of a package index.

# pip_install TEST VENV ARGUMENTS...: pip install into VENV. Three times, since one download that breaks off must not
# fail a test. Exits with 1 if that was in vain, with 77 where no index can be reached.
pip_install() {
  local test=$1 venv=$2 attempt
  shift 2
  for attempt in 1 2 3; do
    "$venv/bin/pip" install -q --disable-pip-version-check "$@" >"$venv/install.log" 2>&1 && return
    echo "$test: attempt $attempt of pip install:"
    cat "$venv/install.log"
    "$venv/bin/pip" download -q --no-deps -d "$venv/probe" tqdm >/dev/null 2>&1 || {
      echo "$test: skipped: the packages it needs are not here, and no package index can be reached"
      exit 77
    }
  done
  exit 1
}
