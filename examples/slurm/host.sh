#!/bin/sh
# One host of digend.sbatch, run there by srun: writes the node file of this box and runs `digend up` on it until the
# batch script says stop. The one argument is the number of its component: 0 has driver, recorder and trainer.
set -eu

group=$1
home=$CLUSTER_HOME
host=$(hostname)
gpus=${SLURM_GPUS_ON_NODE:-0}
name=worker-$group-${SLURM_NODEID:-0}
[ "$group" -ne 0 ] || name="head"

# The driver takes a free port and says so in a file that all hosts see; blobs do the same by HELLO.
if [ "$group" -eq 0 ]; then
    port=$(python3 -c 'import socket; print(socket.create_server(("", 0)).getsockname()[1])')
    echo "tcp://$host:$port" >"$home/address.new"
    mv "$home/address.new" "$home/address"
fi
until [ -e "$home/address" ]; do
    [ ! -e "$home/stop" ] || exit 0
    sleep 0.5
done

slots=$((gpus > 0 ? gpus : 1))
devices='"cpu"'
if [ "$gpus" -gt 0 ]; then
    devices=$(seq -s ', ' 0 $((gpus - 1)) | sed 's/[0-9][0-9]*/"cuda:&"/g')
fi
{
    echo "name = \"$name\""
    echo "address = \"$(cat "$home/address")\""
    echo "data = \"tcp://${CLUSTER_INTERFACE:-$host}\""
    echo "state = \"state-$name\""
    echo "runs = \"runs\""
    [ "$group" -ne 0 ] || printf 'recorder = true\n[driver]\n'
    [ "$group" -ne 0 ] && echo "[generator]" || echo "[trainer]"
    echo "slots = $slots"
    echo "devices = [$devices]"
    printf '[keys]\nprivate = "%s.key"\nallowed = "keys.toml"\n' "$name"
    printf '[timing]\ntorpid_s = 10.0\nlost_s = 60.0\n'
} >"$home/$name.toml"

digend up "$home/$name.toml" --ready-file "$home/$name.ready" >"$home/$name.log" 2>&1 &
up=$!
trap 'kill -TERM "$up" 2>/dev/null || true' TERM INT
while kill -0 "$up" 2>/dev/null; do
    # Workers report to the driver, so the head is stopped when all others have ended.
    if [ -e "$home/stop" ] && { [ "$group" -ne 0 ] || ! ls "$home"/worker-*.ready >/dev/null 2>&1; }; then
        kill -TERM "$up" 2>/dev/null || true
        break
    fi
    sleep 0.5
done
code=0
wait "$up" || code=$?
touch "$home/$name.ended"
exit $code
