#!/usr/bin/env bash
# Check the committed runs with every CPython from 3.11 on the PATH, or known to pyenv, beside the one of .venv.
# Each gets an environment of its own in .pythons/, kept for the next time.
set -euo pipefail
cd "$(dirname "$0")/.."
own=$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || echo none)
checked=0
for version in 3.11 3.12 3.13 3.14 3.15; do
  if [ "$version" = "$own" ]; then continue; fi
  python=""
  for candidate in "python$version" "$(pyenv root 2>/dev/null || true)"/versions/"$version".*/bin/python; do
    if "$candidate" -c 'import venv, ensurepip' >/dev/null 2>&1; then python=$candidate; break; fi
  done
  if [ -z "$python" ]; then continue; fi
  place=".pythons/$version"
  if [ ! -e "$place/.ready" ]; then
    echo "pythons: making $place ..."
    "$python" -m venv "$place"
    "$place/bin/python" -m pip --disable-pip-version-check install -qq -r requirements.txt
    touch "$place/.ready"
  fi
  printf 'pythons: %s  ' "$version"
  "$place/bin/python" -m tachograph check
  checked=$((checked + 1))
done
echo "pythons: the runs hold on $checked other versions of CPython, beside $own"
