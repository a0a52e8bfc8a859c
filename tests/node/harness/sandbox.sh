#!/usr/bin/env bash
# The first process of a node's namespaces (sandbox.py starts it): gives the node a file system in which whatever it
# writes is its own, says so, and then only reaps. When it dies, the kernel kills all else in here and unmounts it all.
#   sandbox.sh <run directory> <directory for logs>
set -euo pipefail
run=$1 logs=$2

# Nothing of what is mounted in here shows outside; containers may ask for mounts that show among themselves.
mount --make-rprivate /
mount --make-rshared /
mount -t proc proc /proc

# Programs of the node write below these. /run becomes empty, for what runs outside is none of the node's business;
# of the others it sees what is there, and writes into memory. Our own directories stay what they are, wherever.
private=$(mktemp -d "$run/private.XXXXXX")
mount -t tmpfs -o mode=755 delayq-node "$private"
mkdir -p "$private"/run/kept/{run,logs}
mount --bind "$run" "$private/run/kept/run"
mount --bind "$logs" "$private/run/kept/logs"
for path in /var/lib /var/log; do
  upper=$private/upper${path////-} work=$private/work${path////-}
  mkdir "$upper" "$work"
  mount -t overlay -o "lowerdir=$path,upperdir=$upper,workdir=$work" delayq-node "$path"
done
mount --rbind "$private/run" /run
mkdir -p /run/lock "$run" "$logs"
mount --bind /run/kept/run "$run"
mount --bind /run/kept/logs "$logs"
echo "nameserver 127.0.0.1" >/run/resolv.conf   # there is none: names fail at once

ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
echo ready

# As process 1 we inherit orphans, and bash reaps whatever ends while it waits.
while :; do
  sleep infinity &
  wait $! || true
done
