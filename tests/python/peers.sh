#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/peers: what is printed of two records that are made up, and what is no record. $1: the repository.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export PYTHONDONTWRITEBYTECODE=1
compare="$1/tools/peers/compare.py"
cat >"$folder/bench.json" <<'RECORD'
{"machine": {"gpu": "some GPU", "driver": "1", "date": "2026-01-02"},
 "variants": [{"name": "1x8", "kinds": [{"name": "sliding_nvfp4", "median_us": 80.0, "floor_us": 60.0}],
  "kernels": [{"name": "attn_qkv_1x8", "in_order_us": 10.0, "floor_us": 8.0}, {"name": "moe_gemm1_1x8", "in_order_us": 30.0, "floor_us": 20.0},
              {"name": "moe_gemm2_1x8", "in_order_us": 15.0, "floor_us": 10.0}]}]}
RECORD
cat >"$folder/peers.json" <<'RECORD'
{"torch": "2", "variants": {"1x8": {
  "sliding": {"layer_us": 200.0, "parts_us": {"qkv": 15.0, "o_proj": 8, "router": 7, "pooler": 8, "unpooler": 8, "experts": 90.0, "attention": 5}},
  "full": {"layer_us": 220.0, "parts_us": {"attention": 6}}}}}
RECORD
python3 "$compare" "$folder/bench.json" "$folder/peers.json" >"$folder/said"
# line WORDS...: a line with just these words.
line() {
    awk '{ $1 = $1; print }' "$folder/said" | grep -qx "$*" || { cat "$folder/said"; echo "wanted: $*"; exit 1; }
}
line layer, sliding attention 60.0 80.0 0.75 200.0 2.50
line layer, full attention - 220.0
line qkv 8.0 10.0 0.80 15.0 1.50
line experts 30.0 45.0 0.67 90.0 2.00
! python3 "$compare" "$folder/bench.json" "$folder/bench.json.gone" 2>"$folder/said" || exit 1
grep -q 'No such file' "$folder/said"
echo '{}' >"$folder/empty.json"
! python3 "$compare" "$folder/empty.json" "$folder/peers.json" 2>"$folder/said" || exit 1
grep -q 'allowed: a record of lathe bench' "$folder/said"
for file in "$1"/tools/peers/*.py; do
    python3 -c 'import ast, sys; ast.parse(open(sys.argv[1], encoding="utf-8").read(), sys.argv[1])' "$file"
done
