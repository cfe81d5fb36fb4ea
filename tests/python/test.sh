#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# $1: lathe, $2: liblathe, $3: sources, $4: python3.

set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
"$1" gen "$3/layouts/muse_spark_tiny.lua" --tp 1 --arch host --out "$folder/tiny" --quiet
"$1" gen "$3/layouts/muse_spark_tiny.lua" --tp 1 --deployment invariant --arch host --out "$folder/invariant" --quiet
LATHE_LIBRARY=$2 LATHE_HEADER=$3/runtime/lathe.h LATHE_TINY=$folder/tiny LATHE_INVARIANT=$folder/invariant \
    PYTHONPATH=$3/tools/python PYTHONDONTWRITEBYTECODE=1 \
    "$4" "$3/tests/python/test_lathe.py"
LATHE_PROGRAM=$1 LATHE_LAYOUT=$3/layouts/muse_spark_tiny.lua PYTHONDONTWRITEBYTECODE=1 OPENBLAS_NUM_THREADS=1 \
    "$4" "$3/tests/python/test_generate.py"
