#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Writes the committed directories of generated/ anew, as its list.txt names them, and removes those that it does not name.
# $1: the lathe to use, by default the one in the build folder.

set -eu
lathe=$(realpath "${1:-$(dirname "$0")/../${LATHE_BUILD:-build}/lathe}")
cd "$(dirname "$0")/.."

kept=' '
while read -r layout tp deployment arch tactics; do
    case $layout in '#'* | '') continue ;; esac
    set -- "layouts/$layout.lua" --tp "$tp" --arch "$arch"
    directory=$layout-tp$tp
    [ "$deployment" = - ] || set -- "$@" --deployment "$deployment"
    [ "$deployment" = - ] || directory=$directory-$deployment
    [ "$tactics" = - ] || set -- "$@" --tactics "$tactics"
    directory=$directory-$arch
    "$lathe" gen "$@" --out "generated/$directory" </dev/null
    kept="$kept$directory "
done <generated/list.txt

for step in generated/*/step.json; do
    directory=$(basename "$(dirname "$step")")
    case $kept in *" $directory "*) ;; *) rm -r "generated/$directory" ;; esac
done
