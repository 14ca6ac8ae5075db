#!/usr/bin/env bash
# Completion as the shells do it: completion_test.sh PROGRAM. Parts are left out where there is no zsh or no fish.
set -euo pipefail
PATH="$(dirname "$1"):$PATH"
eval "$(deepencoder completion bash)"
failed=0

# expect WANTED WORD...: completing the last word gives WANTED (words in any order).
expect() {
  local wanted=$1
  shift
  COMP_WORDS=("$@")
  COMP_CWORD=$(($# - 1))
  _deepencoder || true  # compopt fails outside of a completion
  local got
  got=$(printf '%s\n' "${COMPREPLY[@]:-}" | sort | tr '\n' ' ')
  if [ "$got" != "$wanted " ]; then
    echo "bash, '$*': got '$got', wanted '$wanted '" >&2
    failed=1
  fi
}
expect "bench" deepencoder be
expect "checkpoint completion" deepencoder c
expect "inspect synthesize" deepencoder checkpoint ""
expect "bash fish zsh" deepencoder completion ""
expect "encode" deepencoder help en
expect "--max-tiles= --mode=" deepencoder view --m
expect "--json" deepencoder diff a b --js
expect "gundam" deepencoder encode --mode = g
expect "fp16 fp32" deepencoder bench --dtype fp
expect "--sam-depth --seed" deepencoder checkpoint synthesize --s
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
touch "$folder/a page.png"
expect "$folder/a page.png" deepencoder encode "$folder/a"

if command -v zsh >/dev/null; then
  deepencoder completion zsh >"$folder/_deepencoder"
  zsh -n "$folder/_deepencoder"
  # The functions of zsh's completion replaced by some that print what they are given.
  got=$(zsh -f -c '
    compdef() { : }
    compset() { : }
    compadd() { print -l -- "$@" }
    _files() { print files }
    _describe() { local array; for array in $2 ${6-}; do print -l -- ${(P)array}; done }
    source "$1"
    words=(deepencoder ""); CURRENT=2; PREFIX=""; _deepencoder
    words=(deepencoder view --); CURRENT=3; PREFIX=--; _deepencoder
    words=(deepencoder view --mode=); CURRENT=3; PREFIX=--mode=; _deepencoder
    words=(deepencoder view ""); CURRENT=3; PREFIX=""; _deepencoder' zsh "$folder/_deepencoder")
  for wanted in "bench:measure a server" "info:what a server serves" "--json:The layout" \
                "--max-tiles:Most tiles" gundam files; do
    if ! grep -q -- "^$wanted" <<<"$got"; then
      echo "zsh: '$wanted' is not in: $got" >&2
      failed=1
    fi
  done
fi

if command -v fish >/dev/null; then
  deepencoder completion fish >"$folder/deepencoder.fish"
  # fish_expect WANTED LINE: what fish itself gives for a line; WANTED is a pattern for one of its lines.
  fish_expect() {
    local got
    got=$(cd "$folder" && fish --no-config -c "source deepencoder.fish; complete --do-complete '$2'")
    if ! grep -q -- "^$1" <<<"$got"; then
      echo "fish, '$2': '$1' is not in: $got" >&2
      failed=1
    fi
  }
  fish_expect "bench	measure a server" "deepencoder be"
  fish_expect "encode	" "deepencoder help en"
  fish_expect "fish$" "deepencoder completion f"
  fish_expect synthesize "deepencoder checkpoint s"
  fish_expect "--max-tiles=	Most tiles" "deepencoder view --m"
  fish_expect "--json	" "deepencoder diff a b --js"
  fish_expect "--mode=gundam$" "deepencoder encode --mode=g"
  fish_expect "fp16$" "deepencoder bench --dtype fp"
  fish_expect "a page.png$" "deepencoder encode a"
  fish_expect "--out=a page.png$" "deepencoder encode --out=a"
fi
exit $failed
