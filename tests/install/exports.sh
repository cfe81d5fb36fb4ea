#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# $1: the shared library, $2: the list of its symbols. Both must say the same, and every name begins with lathe_.

set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
nm -D --defined-only "$1" | awk '{ print $NF }' | LC_ALL=C sort >"$folder/found"
if grep -v '^lathe_' "$folder/found"; then
    echo "exported, but not named lathe_" >&2
    exit 1
fi
grep -v '^#' "$2" | LC_ALL=C sort >"$folder/listed"
if ! diff "$folder/listed" "$folder/found"; then
    echo "runtime/abi.txt (<) and the library (>) differ; a symbol that goes or changes breaks who links to it" >&2
    exit 1
fi
