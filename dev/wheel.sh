#!/usr/bin/env bash
# Builds a wheel, installs it with the locked versions of what it needs into an empty environment, and starts a project there.
set -euo pipefail
home="$PWD"
place="$(mktemp -d)"
trap 'rm -rf "$place"' EXIT
git archive HEAD | tar -x -C "$place" --one-top-level=source # building leaves files beside the source
"$home/.venv/bin/python" -m pip --disable-pip-version-check wheel -q --no-deps --no-build-isolation -w "$place" "$place/source"
"$home/.venv/bin/python" -m venv "$place/empty"
# the versions of the lock without its hashes, since the wheel has none
sed -n 's/^\([a-z][^ ]*==[^ ]*\).*/\1/p' "$home/requirements.lock" > "$place/versions"
"$place/empty/bin/python" -m pip --disable-pip-version-check install -q --no-compile -c "$place/versions" "$place"/*.whl
cd "$place"
tachograph="$place/empty/bin/tachograph"
"$tachograph" init "ein Anfang" > /dev/null
cd "ein Anfang"
"$tachograph" check
"$tachograph" verify
"$tachograph" policy test
"$tachograph" doctor > /dev/null
