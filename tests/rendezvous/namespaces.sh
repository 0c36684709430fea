# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# Source this file in tests. It creates two hosts from network namespaces, 10.213.78.1 and .2,
# connected by the interface `wire`; each also has an interface that leads nowhere. Ends the test
# with status 77 without network namespaces. The namespaces and their processes are removed when the
# test ends.
#
# "${on_first[@]}" COMMAND... and "${on_second[@]}" COMMAND... run a command on a host; `cut_cable`
# disconnects the second host, and `mend_cable` reconnects it.
first=kolo-first-$$ second=kolo-second-$$
ip netns add "$first" 2>/dev/null || { echo "no network namespaces here"; exit 77; }
remove_hosts() {
  local host pid
  for host in "$first" "$second"; do
    for pid in $(ip netns pids "$host" 2>/dev/null); do kill -KILL "$pid" 2>/dev/null; done
    ip netns delete "$host" 2>/dev/null
  done
}
trap remove_hosts EXIT
ip netns add "$second" || exit 1
ip -n "$first" link add wire type veth peer name wire netns "$second" || exit 1
number=1
for host in "$first" "$second"; do
  ip -n "$host" link set lo up
  ip -n "$host" address add "10.213.78.$number/24" dev wire
  ip -n "$host" link set wire up
  ip -n "$host" link add dead type veth peer name deader
  ip -n "$host" address add "10.213.67.$number/24" dev dead
  ip -n "$host" link set dead up
  ip -n "$host" link set deader up
  number=$((number + 1))
done
# Each with a name of its own. They become the program, so its number is theirs.
on_first=(ip netns exec "$first" unshare --uts sh -c 'hostname first; exec "$@"' sh)
on_second=(ip netns exec "$second" unshare --uts sh -c 'hostname second; exec "$@"' sh)
cut_cable() { ip -n "$second" link set wire down; }
mend_cable() { ip -n "$second" link set wire up; }
