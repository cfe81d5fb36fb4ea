#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# $1: build folder, $2: sources, $3: lathe, $4: C compiler. Installs into a fresh folder, builds the example there
# once by pkg-config and once by CMake, and compares its tokens with those of lathe generate.

set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
cmake --install "$1" --prefix "$folder/root" >/dev/null
grep -q "$2" -r "$folder/root/include" "$folder"/root/lib*/cmake "$folder"/root/lib*/pkgconfig 2>/dev/null && {
    echo "an installed file names a path of this machine" >&2
    exit 1
}
PKG_CONFIG_PATH=$(dirname "$(find "$folder/root" -name lathe.pc)")
export PKG_CONFIG_PATH
library=$(dirname "$(find "$folder/root" -name liblathe.so)")
# shellcheck disable=SC2046
$4 -std=c17 -Wall -Wextra -Werror "$2/tools/example/step.c" $(pkg-config --cflags --libs lathe) \
    "-Wl,-rpath,$library" -o "$folder/step"
"$3" gen "$2/layouts/muse_spark_tiny.lua" --tp 1 --arch host --out "$folder/tiny" --quiet
found=$("$folder/step" "$folder/tiny" calm:3 7 91 10)
wanted=$("$3" generate "$folder/tiny" --weights calm:3 --tokens 7,91,10 --steps 6)
[ "$found" = "$wanted" ] || {
    echo "the example yields $found, lathe generate $wanted" >&2
    exit 1
}
if "$folder/step" "$folder/tiny" no/such/weights 7 2>"$folder/said"; then
    exit 1
fi
grep -q 'no/such/weights: No such file' "$folder/said"

# The same by find_package.
mkdir "$folder/project"
cat >"$folder/project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(example LANGUAGES C)
find_package(lathe 0.1 REQUIRED)
add_executable(step $2/tools/example/step.c)
target_link_libraries(step PRIVATE lathe::lathe)
END
cmake -S "$folder/project" -B "$folder/project/build" "-DCMAKE_PREFIX_PATH=$folder/root" >/dev/null
cmake --build "$folder/project/build" >/dev/null
[ "$("$folder/project/build/step" "$folder/tiny" calm:3 7 91 10)" = "$wanted" ]
