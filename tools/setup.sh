# SPDX-License-Identifier: Apache-2.0
# Sourced by demo.sh and test.sh: installs what is missing, finds or fetches NVRTC, builds. Made for Debian 12; touches
# nothing outside the packages it installs and the build folder.

set -eu
cd "$(dirname "$0")/.."
build=${LATHE_BUILD:-build}
case $build in
/*) fetched=$build/nvidia ;;
*) fetched=$PWD/$build/nvidia ;;
esac

say() {
    printf '%s\n' "$*" >&2
}

need_packages() {
    missing=
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    say "installing$missing"
    root=
    [ "$(id -u)" = 0 ] || root=sudo
    $root apt-get update -qq
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive $root apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

# NVRTC 12.9 is the first that knows every architecture we generate for; an older one is passed over.
find_nvrtc() {
    for candidate in ${LATHE_NVRTC:-} /usr/local/cuda/lib64/libnvrtc.so.13 /usr/local/cuda/lib64/libnvrtc.so.12 \
        "$fetched"/nvidia/*/lib/libnvrtc.so.1[23]; do
        [ -e "$candidate" ] || continue
        case $(readlink -f "$candidate") in
        *libnvrtc.so.12.[0-8].*) continue ;;
        esac
        LATHE_NVRTC=$candidate
        export LATHE_NVRTC
        return 0
    done
    return 1
}

fetch_nvrtc() {
    find_nvrtc && return 0
    need_packages python3-pip
    say "fetching NVRTC from PyPI into $fetched"
    mkdir -p "$build"
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps \
        --target "$fetched" "nvidia-cuda-nvrtc>=13.0,<14"
    find_nvrtc || say "NVRTC is still missing: cubins cannot be built"
}

build_lathe() {
    [ -f "$build/build.ninja" ] || cmake -G Ninja -B "$build" >/dev/null
    ninja -C "$build" --quiet
}

if command -v dpkg-query >/dev/null 2>&1; then
    need_packages gcc g++ cmake ninja-build pkg-config liblua5.4-dev libjansson-dev libxxhash-dev \
        libboost-context-dev libcriterion-dev libclang-14-dev libclang1-14
fi
fetch_nvrtc
