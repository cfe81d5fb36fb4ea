#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compiles a whole deployment for the architectures that nothing runs on here (compiles.sh).
#   architectures.sh LATHE CACHE LAYOUT TP DEPLOYMENT [VARIANT]
# VARIANT ("4, 8"): this batch variant only, instead of the layout's three. Exit 77: no NVRTC that knows the architectures.
set -eu

lathe=$1 cache=$2 layout=$3 tp=$4 deployment=${5:-} variant=${6:-}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
root=$(dirname "$(dirname "$layout")")
copy=$folder/$(basename "$layout")
if [ -n "$variant" ]; then
    sed "s/variants = { { 1, 1 }, { 1, 8 }, { 4, 8 } }/variants = { { $variant } }/" "$layout" >"$copy"
    ! cmp -s "$layout" "$copy" || { echo "$layout: its batch variants have changed, this test must too"; exit 1; }
    layout=$copy
fi

for arch in sm_100a sm_103a sm_120a; do
    "$lathe" gen "$layout" --root "$root" --tp "$tp" --deployment "$deployment" --arch "$arch" --no-scan --out "$folder/step-$arch"
    sh "$(dirname "$0")/compiles.sh" "$lathe" "$cache" "$folder" "$arch"
done
