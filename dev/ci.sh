#!/usr/bin/env bash
# All that CI does: clone what is committed into a path with a space and an umlaut, set up from the lock, run every stage
# there, print what each took. The exit code is the worst of all stages, and the last lines printed are those of the stage that failed.
# Two stages that keep one core busy and write nothing that others read run beside the rest.
set -uo pipefail
unset PYTHONDONTWRITEBYTECODE # many processes are started: bytecode is compiled once for all of them
# in memory where that has room, since tens of thousands of small files are written; else where temporary files lie
if [ "$(df --output=avail /dev/shm 2>/dev/null | tail -n 1)" -gt 4000000 ] 2>/dev/null &&
  ! grep -q ' /dev/shm .*noexec' /proc/mounts; then
  place="$(mktemp -d -p /dev/shm)"
fi
place="${place:-$(mktemp -d)}"
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$place"' EXIT
clone="$place/ein Gerät"
git clone -q . "$clone" || exit 2
cd "$clone" || exit 2
worst=0
touch "$place/table" "$place/failed"

stage() { # NAME COMMAND...
  local name="$1" begun=$SECONDS code
  shift
  echo "== $name"
  # a place of its own for the files of tests: pytest spends a minute on removing those of runs before
  export PYTEST_DEBUG_TEMPROOT="$place/files-of-$name"
  mkdir "$PYTEST_DEBUG_TEMPROOT"
  "$@" 2>&1 < /dev/null | tee "$place/$name.log"
  code=${PIPESTATUS[0]}
  printf '%5d s  %-16s exit %d\n' $((SECONDS - begun)) "$name" "$code" >> "$place/table"
  [ "$code" -eq 0 ] || echo "$name $code" >> "$place/failed"
  return "$code"
}

unchanged() { # recording again changes nothing that is committed
  git diff --exit-code && test -z "$(git status --porcelain)"
}

canonical() {
  make canonical && unchanged
}

stages() { # TARGET...
  for target in "$@"; do
    stage "$target" make "$target"
  done
}

if stage canonical canonical; then
  stages lint wheel > "$place/beside" 2>&1 &
  stages evidence-check verify policy-test fixture-check smoke trace-smoke tool-smoke
  # one process writes the bytecode of all tests and what they import; else each of those that run them compiles it all
  stage collect make test ARGS="--collect-only -qq"
  stages smoke-runtime
  # without what the stages before ran
  stage test make test ARGS="--ignore tests/smoke --ignore tests/test_scenarios.py --ignore tests/properties"
  wait
  cat "$place/beside"
  stage unchanged unchanged
fi
printf '\n%s\n%5d s  in all, %d min %02d s\n' "$(< "$place/table")" "$SECONDS" $((SECONDS / 60)) $((SECONDS % 60))
while read -r name code; do
  [ "$code" -le "$worst" ] || worst=$code
  printf '\n== %s failed; its last lines:\n' "$name"
  tail -n 40 "$place/$name.log"
done < "$place/failed"
exit "$worst"
