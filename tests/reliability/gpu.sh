#!/bin/sh
# What needs a GPU, in one go of less than ten minutes: first, alone on it, engines that come and go, behind which the device must have
# its memory again; then all at once five fuzzers of problems, the soak, calls from many threads and, of CUDA, the four tools of
# compute-sanitizer over more problems.
#   sh tests/reliability/gpu.sh cuda|hip [--seconds 540] [--skip PART,PART] [--seed N] [--least 20000] [--cycles 10000]
#                                        [--library PATH] [--out FOLDER]
# Parts: memory, fuzz, soak, storm, sanitizer. The fuzzers take seeds N to N + 4 (else of the clock; they are printed). They fail if they
# did fewer problems than --least together, or one of them fewer than a 500th of that through a kernel that the back end lists. What each
# part says goes to a file of FOLDER (out/reliability).
# In a clone that is built (node scripts/build-native.mjs cuda 90, cmake --build build/cuda --target fuzz-volume), or in the folder of
# scripts/bench-bundle.mjs, which needs neither Node nor a compiler. The tools over the table of cases are sanitize.mjs beside it.
set -u
cd "$(dirname "$0")/../.." || exit 2
usage() {
  sed -n 's/^#   sh /usage: sh /p; s/^#  *\[/         [/p' "tests/reliability/gpu.sh" >&2
  exit 2
}
kind="${1:-}"
case "$kind" in cuda | hip) shift ;; *) usage ;; esac
seconds=540 skip='' seed="${TESSERA_FUZZ_SEED:-$(date +%s)}" least=20000 cycles=10000 library='' out=out/reliability
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case "$1" in
    --seconds) seconds=$2 ;;
    --skip) skip=$2 ;;
    --seed) seed=$2 ;;
    --least) least=$2 ;;
    --cycles) cycles=$2 ;;
    --library) library=$2 ;;
    --out) out=$2 ;;
    *) usage ;;
  esac
  shift 2
done
for part in $(echo "$skip" | tr , ' '); do
  case "$part" in memory | fuzz | soak | storm | sanitizer) ;; *) usage ;; esac
done
wanted() { case ",$skip," in *",$1,"*) return 1 ;; esac; }

node=node
[ -x ./node ] && node=./node # of the bundle
fuzzer="build/$kind/tests/fuzz/fuzz-volume"
if [ -z "$library" ]; then
  for file in "backends/$kind/lib/libtessera-$kind.so" "node_modules/@tessera/$kind-linux-x64-gnu/libtessera-$kind.so"; do
    [ -e "$file" ] && library="$PWD/$file"
  done
fi
for file in "$fuzzer" "${library:-libtessera-$kind.so}"; do
  [ -e "$file" ] || { echo "$file isn't there: build it, as the head of this script says" >&2; exit 2; }
done
mkdir -p "$out" && rm -f "$out"/*.log "$out"/*.status || exit 2

begin=$(date +%s)
left() { echo $((begin + seconds - $(date +%s))); }
names=''
# In the background: its name, how many seconds it may take, the command.
start() {
  name=$1 limit=$2
  shift 2
  names="$names $name"
  (
    timeout -k 5 "$limit" "$@" > "$out/$name.log" 2>&1
    echo "$? $(($(date +%s) - begin))" > "$out/$name.status"
  ) &
}

if wanted memory; then
  driver="build/$kind/backends/$kind/$kind-driver-cycles" # the driver's part of it, told apart
  [ -x "$driver" ] || driver=''
  start memory "$(left)" "$node" tests/reliability/src/cycles.mjs "$cycles" "$library" ${driver:+"$driver"}
  wait
  echo "memory: $(tail -n 1 "$out/memory.log")"
fi
work=$(($(left) - 25)) # the last problem, and that of a tool above all, takes a while
[ "$work" -gt 0 ] || { echo "no time is left of $seconds seconds" >&2; exit 1; }
seeds=''
if wanted fuzz; then
  for n in 0 1 2 3 4; do
    seeds="$seeds $((seed + n))"
    start "fuzz-$((seed + n))" "$(left)" "$fuzzer" "$library" --seed $((seed + n)) --problems 1000000000 --seconds "$work" \
      --least $((least / 500))
  done
  echo "seeds:$seeds"
fi
if wanted soak; then
  minutes=$(awk "BEGIN { m = $work / 60; printf \"%.3f\", (m > 8) ? 8 : m }")
  start soak "$(left)" "$node" tests/reliability/soak.mjs --minutes "$minutes" --library "$library"
fi
wanted storm && start storm "$(left)" "$node" tests/reliability/src/storm.mjs 40 5 cpu "$library"
if wanted sanitizer && [ "$kind" = cuda ]; then
  if command -v compute-sanitizer > /dev/null; then
    for tool in memcheck racecheck initcheck synccheck; do
      start "$tool" "$(left)" compute-sanitizer --tool "$tool" --error-exitcode 9 "$fuzzer" "$library" \
        --seed $((seed + 5)) --problems 1000000000 --seconds $((work * 2 / 3)) --work 24 --least 0
    done
  else
    echo "sanitizer: compute-sanitizer isn't on PATH; --skip sanitizer does without" >&2
    exit 2
  fi
fi
wait

failed=0
for name in $names; do
  read -r status at < "$out/$name.status"
  case "$status" in
    0) state=ok ;;
    124 | 137) state='OUT OF TIME' ;;
    *) state="FAILED ($status)" ;;
  esac
  echo "$name: $state at $at s"
  [ "$status" = 0 ] || { failed=$((failed + 1)); tail -n 30 "$out/$name.log"; }
done
if wanted fuzz; then
  problems=0
  for one in $seeds; do
    did=$(sed -n 's/.*, seed [0-9]*: \([0-9]*\) problems.*/\1/p' "$out/fuzz-$one.log")
    problems=$((problems + ${did:-0}))
  done
  cat "$out"/fuzz-*.log
  echo "$problems problems of seeds$seeds"
  [ "$problems" -ge "$least" ] || { failed=$((failed + 1)); echo "FAILED: must be $least or more"; }
fi
for name in soak storm; do wanted "$name" && tail -n 2 "$out/$name.log"; done
for tool in memcheck racecheck initcheck synccheck; do
  [ -e "$out/$tool.log" ] || continue
  grep -v '^=* *$' "$out/$tool.log"
  # A problem of one part of a tile starts no pipeline and waits for nothing.
  tiles=$(awk '/queries and keys/ { sum += $NF } END { print sum + 0 }' "$out/$tool.log")
  echo "$tool: $tiles results of more than 128 queries and keys"
  [ "$tiles" -gt 0 ] || { failed=$((failed + 1)); echo "FAILED: must be some"; }
done
echo "$(($(date +%s) - begin)) s, $failed failed"
[ "$failed" -eq 0 ]
