#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks the output of bench/peers.sh for a peer that fails, with an mpirun that only prints times.
# Usage: peers.sh PATH_OF_PEERS_SH
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/mpirun" <<'END'
#!/usr/bin/env bash
case "$*" in
  *--list-gradients*) echo "weight 10" ;;
  *kolo-perf*) printf 'mode,kolo_us\nbusy,100.0\n' ;;
  *tuned*) echo 300.0 ;;
  *horovod*) echo "No module named 'horovod'" >&2; exit 3 ;;
  *ddp*) echo "not a time" ;;
esac
END
chmod +x "$folder/mpirun"

status=0
PATH=$folder:$PATH bash "$1" kolo-perf python3 resnet50 2 1 >"$folder/out" 2>"$folder/err" || status=$?
cat "$folder/out" "$folder/err"
expect() {
  grep -qF -- "$2" "$folder/$1" || { echo "peers.sh does not say: $2" >&2; exit 1; }
}
((status == 1)) || { echo "exit status $status, wanted 1" >&2; exit 1; }
expect out "round 1: Kolo 100.0 us, horovod failed, horovod_tuned 300.0 us (3.00), ddp failed"
expect out "resnet50 on 2 ranks, median ratio of horovod_tuned: 3.00"
expect err "horovod failed (exit status 3, printed '')"
expect err "No module named 'horovod'"
expect err "ddp failed (exit status 0, printed 'not a time')"
