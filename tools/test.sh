#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The demo, then every test that needs no GPU, but for the few of label `long`. What CI calls.

. "$(dirname "$0")/setup.sh"
need_packages python3-numpy
sh tools/demo.sh
ctest --test-dir "$build" --output-on-failure -j "$(nproc)" -LE long
echo "Next: 'ctest --test-dir $build -L emulated' runs one label, '-L long' the one left out; tests/mutate/mutate.sh removes barriers one by one."
