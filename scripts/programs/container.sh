#!/bin/sh
# A machine and a container in a user namespace: `container.sh SLUICE`. Prints the round trips of a ping
# from the container to the machine before, while and after a link of 100 ms is attached.
set -e
ip link set lo up
unshare -n sleep 60 &
container=$!
while [ "$(readlink /proc/$container/ns/net)" = "$(readlink /proc/$$/ns/net)" ]; do sleep 0.05; done
inside() { nsenter -t $container -n "$@"; }
ip link add vm0 type veth peer name eth0 netns $container
ip address add 10.77.0.1/24 dev vm0
ip link set vm0 up
inside ip address add 10.77.0.2/24 dev eth0
inside ip link set eth0 up
round_trip() { inside ping -n -c 5 -i 0.2 10.77.0.1 | sed -n "s|^rtt [^=]*= [^/]*/\([^/]*\)/.*|$1 \1|p"; }
round_trip before
"$1" attach --pid $container --rtt 100ms 2>attached &
link=$!
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    grep -q Ctrl-C attached 2>/dev/null && break
    sleep 0.1
done
round_trip attached
kill -TERM $link
wait $link
round_trip after
kill $container
