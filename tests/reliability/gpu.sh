#!/bin/sh
# What needs a GPU, in one go (about 25 minutes): sh tests/reliability/gpu.sh cuda|hip
# The back end and the tests have to be built: node scripts/build-gpu.mjs, or node scripts/build-native.mjs cuda 90.
set -u
cd "$(dirname "$0")/../.."
kind="${1:?cuda or hip}"
tree="build/$kind"
library="backends/$kind/lib/libtessera-$kind.so"
failed=0
step() { # title, command ...
  echo "== $1"
  shift
  "$@" || { echo "FAILED ($?): $*"; failed=$((failed + 1)); }
}
memory() { nvidia-smi --query-gpu=memory.used --format=csv,noheader 2>/dev/null || true; }

cmake --build "$tree" --target fuzz-volume test-abi-smoke test-abi-decode test-abi-append || exit 1
before="$(memory)"
step "20,000 problems" "$tree/tests/fuzz/fuzz-volume" "$library" --seed "${TESSERA_FUZZ_SEED:-1}" --problems 20000 --seconds 480
step "soak" node tests/reliability/soak.mjs --minutes "${SOAK_MINUTES:-8}" --backend "$kind"
step "64 calls from 8 workers" node tests/reliability/src/storm.mjs 8 5 cpu "$kind"
step "2,000 engines" node --expose-gc tests/reliability/src/cycles.mjs 2000 "$kind"

echo "== two processes on one GPU"
"$tree/tests/fuzz/fuzz-volume" "$library" --seed 21 --problems 500 > /dev/null &
one=$!
step "the other" "$tree/tests/fuzz/fuzz-volume" "$library" --seed 22 --problems 500
wait "$one" || { echo "FAILED: the first"; failed=$((failed + 1)); }

if [ "$kind" = cuda ]; then
  for tool in memcheck racecheck initcheck synccheck; do
    step "compute-sanitizer $tool" compute-sanitizer --tool "$tool" --error-exitcode 9 \
      "$tree/tests/fuzz/fuzz-volume" "$library" --seed 31 --problems 60 --work 16
  done
fi
echo "memory of the GPU before: $before; after: $(memory)"
echo "$failed steps failed"
[ "$failed" -eq 0 ]
