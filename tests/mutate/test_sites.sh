#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests the mutator itself: which sites it lists in a small kernel, and what removing one leaves.
#   test_sites.sh MUTATE
set -eu

mutate=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
kernel=$folder/kernel.cuh

cat >"$kernel" <<'END'
// block_sync() in a comment is no site
/* nor is gpu_fence() here */
__device__ void kernel(u64 *bar) {
    const char *text = "grid_wait()";
    grid_wait();
    // keep: the reason above
    block_sync();
    mbar_wait(bar + index(")",
                          ')'), 0); // keep: the reason beside
    my_block_sync();
    warp_sync ();
}
END

tab=$(printf '\t')
found=$("$mutate" list "$kernel" | cut -f 2,4,5)
wanted="5${tab}grid_wait${tab}
7${tab}block_sync${tab}the reason above
8${tab}mbar_wait${tab}the reason beside
11${tab}warp_sync${tab}"
if [ "$found" != "$wanted" ]; then
    printf 'sites found:\n%s\nwanted:\n%s\n' "$found" "$wanted"
    exit 1
fi

check_removed() { # PRIM WANTED-LINES
    line=$("$mutate" list "$kernel" | grep "$tab$1$tab")
    "$mutate" apply "$kernel" "$(echo "$line" | cut -f 3)" >"$folder/mutated"
    removed=$(diff "$kernel" "$folder/mutated" | grep '^>' || true)
    if [ "$removed" != "$2" ] || [ "$(wc -l <"$kernel")" != "$(wc -l <"$folder/mutated")" ]; then
        printf 'removing %s left:\n%s\nwanted:\n%s\n' "$1" "$removed" "$2"
        exit 1
    fi
}
check_removed grid_wait '>     [](auto &&...) {}();'
check_removed warp_sync '>     [](auto &&...) {} ();'
check_removed mbar_wait '>     [](auto &&...) {}(bar + index(")",'

if "$mutate" apply "$kernel" 100000 >/dev/null 2>&1 || "$mutate" list "$folder/absent" 2>/dev/null; then
    echo "an offset or a file that does not exist was accepted"
    exit 1
fi
