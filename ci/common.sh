# Sourced by the scripts beside it: one virtual environment, what is installed in it, the build.
# shellcheck shell=bash

set -euo pipefail
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$ROOT"
export PIP_DISABLE_PIP_VERSION_CHECK=1
export PYTHONPATH="$ROOT${PYTHONPATH:+:$PYTHONPATH}" # the package is built in place

say() { printf '== %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Enters the active virtual environment if there is one, else .venv, made at the first call.
use_venv() {
  if [ -n "${VIRTUAL_ENV:-}" ]; then
    VENV="$VIRTUAL_ENV"
  else
    VENV="$ROOT/.venv"
  fi
  if ! "$VENV/bin/python" -c '' 2>/dev/null; then
    local python
    for python in python3.11 python3; do
      "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break
      python=
    done
    [ -n "$python" ] || die "morok needs Python 3.11 or newer, as python3.11 or python3"
    say "making $VENV with $("$python" --version)"
    rm -rf "$VENV"
    "$python" -m venv "$VENV" || die "no venv: on Debian, apt-get install python3-venv"
  fi
  export PATH="$VENV/bin:$PATH" VIRTUAL_ENV="$VENV"
  PY="$VENV/bin/python"
}

# Installs the requirements of the named extras, unless done before with the same requirements.
install() {
  local extras="$*" stamp digest
  stamp="$VENV/.morok-${extras// /-}"
  digest="$(cat pyproject.toml ci/constraints.txt ci/requirements.py | cksum) $("$PY" --version)"
  [ "$(cat "$stamp" 2>/dev/null)" = "$digest" ] && return
  say "installing what is needed for: $extras"
  "$PY" ci/requirements.py "$@" > "$stamp.txt"
  "$PY" -m pip install -q -r "$stamp.txt" -c ci/constraints.txt
  printf '%s' "$digest" > "$stamp"
}

# PyTorch is only compared with. Where it cannot be had in reasonable time, tests go without it.
install_torch() {
  "$PY" -c 'import torch' 2>/dev/null && return
  say "installing PyTorch to compare with (skip it with --no-torch)"
  "$PY" ci/requirements.py --only torch > "$VENV/.morok-torch.txt"
  timeout 300 "$PY" -m pip install -q -r "$VENV/.morok-torch.txt" -c ci/constraints.txt \
    || say "PyTorch could not be installed: its tests will be skipped"
}

build() {
  "$PY" -c 'import pathlib, sys, sysconfig as s
sys.exit(not (pathlib.Path(s.get_path("include")) / "Python.h").exists())' \
    || die "no Python.h: on Debian, apt-get install python3-dev"
  say "building (MOROK_BUILD=${MOROK_BUILD:-release})"
  mkdir -p build
  "$PY" setup.py -q build_ext --inplace > build/log.txt 2>&1 \
    || { cat build/log.txt; die "the build failed (compiler: ${CC:-cc})"; }
}
