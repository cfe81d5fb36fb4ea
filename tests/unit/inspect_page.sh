#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# $1: lathe, $2: a generated directory. Opens the page of `lathe inspect --html` in a headless Chromium: it draws everything and
# says nothing on the console. 77 (skipped) where there is no Chromium.
set -eu
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || exit 77
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$1" inspect "$2" --cache "$folder/cache" --html "$folder/page.html"
timeout 90 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$folder/profile" --virtual-time-budget=5000 \
    --enable-logging=stderr --dump-dom "file://$folder/page.html" >"$folder/dom" 2>"$folder/log"
fail() {
    echo "$*" >&2
    exit 1
}
# at_least COUNT TEXT: how often the text stands in what was drawn.
at_least() {
    found=$(grep -o -- "$2" "$folder/dom" | wc -l)
    [ "$found" -ge "$1" ] || fail "the page shows '$2' $found times, wanted $1"
}
! grep -i 'console' "$folder/log" || fail "the console is not silent"
at_least 1 'data-ready="yes"'
at_least 3 'aria-pressed='
at_least 40 '<rect '
at_least 20 '<circle '
at_least 80 'id="kernel-'
at_least 20 'href="#kernel-'
at_least 1 'id="lua-layouts/muse_spark_model.lua-1"'
! grep -o '="[^"]*\(NaN\|undefined\|Infinity\)[^"]*"' "$folder/dom" || fail "a figure is missing"
