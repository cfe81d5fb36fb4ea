#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# From a fresh clone to a checked decode step: installs, builds, generates the tiny Muse Spark, builds its cubins, runs and
# checks the step on the GPU if there is one, else on the host device.

. "$(dirname "$0")/setup.sh"
build_lathe

lathe=$build/lathe
cache=$build/cache
out=$build/generated

say "== cubins for sm_90a (no GPU needed)"
"$lathe" gen layouts/muse_spark_tiny.lua --tp 1 --arch sm_90a --out "$out/muse_spark_tiny-tp1-sm_90a"
"$lathe" build "$out/muse_spark_tiny-tp1-sm_90a" --cache "$cache"

if nvidia-smi -L >/dev/null 2>&1; then
    say "== the step on the GPU, launch by launch against the reference"
    "$lathe" run "$out/muse_spark_tiny-tp1-sm_90a" --device cuda --check --weights calm:1 --cache "$cache"
else
    say "== the step on the host device, launch by launch against the reference"
    "$lathe" gen layouts/muse_spark_tiny.lua --tp 1 --arch host --out "$out/muse_spark_tiny-tp1-host"
    "$lathe" run "$out/muse_spark_tiny-tp1-host" --device host --check --weights calm:1 --cache "$cache"
fi

echo "Next: read $out/muse_spark_tiny-tp1-sm_90a/step.json and one of the .cu files beside it, or try" \
    "'$lathe gen layouts/muse_spark.lua --tp 1 --out $build/full --why'."
