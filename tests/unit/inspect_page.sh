#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# $1: lathe, $2: a generated directory. Opens the page of `lathe inspect --html` in a headless Chromium: it draws everything and
# says nothing on the console. 77 (skipped) where there is no Chromium.
set -eu
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || exit 77
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# With a record of `lathe bench`: one kernel faster than nothing, as a difference of noisy steps may be.
kernel=head_logits_1x8
tactic=$("$1" inspect "$2" --cache "$folder/cache" --kernel "$kernel" | sed -n 's/^ *\(k[A-Z][^:]*\): .*/\1/p')
cat >"$folder/bench.json" <<RECORD
{"kind": "lathe bench", "format": 1, "layout": "muse_spark", "deployment": "", "arch": "sm_90a", "tp": 8, "layers": 12,
 "layers_of": 62, "machine": {"gpu": "some GPU", "driver": "1", "date": "2026-01-02", "multiprocessors": 132},
 "variants": [{"name": "1x8", "kinds": [], "kernels": [{"name": "$kernel", "tactic": "$tactic", "left_out_us": 1,
  "in_order_us": -1.5, "floor_us": 0.1, "predicted_us": 3}]}]}
RECORD
"$1" inspect "$2" --cache "$folder/cache" --record "$folder/bench.json" --html "$folder/page.html"
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
at_least "$("$1" inspect "$2" --cache "$folder/cache" --json | grep -c '"provider":')" 'id="kernel-'
at_least 20 'href="#kernel-'
at_least 1 'measured on some GPU'
at_least 1 '>-1.50<'
at_least 1 'id="lua-layouts/muse_spark_model.lua-1"'
! grep -o '="[^"]*\(NaN\|undefined\|Infinity\)[^"]*"' "$folder/dom" || fail "a figure is missing"
