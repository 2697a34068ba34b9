#!/usr/bin/env bash
# Builds one fuzz target with coverage and the address sanitizer, then runs it.
# Usage: run.sh TARGET [SECONDS] [libFuzzer options...]
set -euo pipefail
cd "$(dirname "$0")"

target=${1:?usage: run.sh TARGET [SECONDS] [libFuzzer options...]}
seconds=${2:-60}
shift "$(($# < 2 ? $# : 2))"

triple=$(rustc +nightly -vV | sed -n 's/^host: //p')
# What cargo-fuzz passes; an explicit target keeps the flags away from build scripts.
export RUSTFLAGS="-Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cllvm-args=-simplifycfg-branch-fold-threshold=0 \
    -Zsanitizer=address --cfg fuzzing -Ccodegen-units=1"
cargo +nightly build --release --target "$triple" --bin "$target"

built=${CARGO_TARGET_DIR:-target}/$triple/release/$target
mkdir -p "corpus/$target" "artifacts/$target"
dictionary=()
[ -f "dictionaries/$target.dict" ] && dictionary=("-dict=dictionaries/$target.dict")
exec "$built" "corpus/$target" "-artifact_prefix=artifacts/$target/" \
    "-max_total_time=$seconds" -timeout=10 -rss_limit_mb=1024 "${dictionary[@]}" "$@"
