#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the bound on waits costs: the chain of boundaries as it is, against the same with giving up taken out of the source, 20 pairs
# in turn. `bound.sh prepare` after tests/gpu/pack.sh, on the machine that compiles; without an argument on one with two GPUs.
set -eu
cd "$(dirname "$0")/../.."
pack=build-gpu
export LD_LIBRARY_PATH=$PWD/$pack/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
bounded=$pack/generated/boundary_chain-tp2-sm_90a
unbounded=$pack/generated/boundary_chain-tp2-unbounded-sm_90a
if [ "${1:-}" = prepare ]; then
    rm -rf "$unbounded"
    cp -R "$bounded" "$unbounded"
    header=$unbounded/templates/collective/lamport.cuh
    sed 's/^    if (peer_load4(m->abort) != 0)$/    return 1;\n&/' "$header" >"$header.new"
    if cmp -s "$header" "$header.new"; then
        echo "bound.sh: lamport_patience() does not look as it did" >&2
        exit 2
    fi
    mv "$header.new" "$header"
    "$pack/lathe" build "$unbounded" --cache "$pack/cache"
    exit 0
fi
"$pack/lathe" bench "$bounded" --versus "$unbounded" --cache "$pack/cache" --layers 0 --pairs 20 --replays "${REPLAYS:-100}"
