#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a program on all nodes of a job of a cloud batch service that starts the same container on
# every node, such as a multi-node parallel job of AWS Batch. Every node runs this script. The main
# node waits until the others have reported their addresses, and then runs mpirun; the other nodes
# only run sshd for it.
#
# Usage: batch_node.sh PROGRAM [ARGUMENT...]
#   NODE, NODES    number of this node, from 0, and of nodes; on AWS Batch these are known
#   MAIN_ADDRESS   address of node 0, which is the main node; on AWS Batch it is known
#   SLOTS          ranks of this node (the number of its cores, divided by THREADS)
#   NODES_TIMEOUT  seconds to wait for the other nodes (600)
#   NODES_DIR      directory for the addresses, on the main node (/tmp/kolo-nodes)
#   SSHD, SSHD_CONFIG, SSH_ARGUMENTS
#                  the server (/usr/sbin/sshd), its configuration (~/sshd_config), arguments for ssh
#   THREADS, INTERFACE
#                  as for hosts.sh
#
# All nodes have the same ssh key, which the configuration of sshd accepts.
set -euo pipefail
if (($# < 1)); then
  sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "$0" >&2
  exit 2
fi
node=${NODE:-${AWS_BATCH_JOB_NODE_INDEX:?NODE is not set}}
nodes=${NODES:-${AWS_BATCH_JOB_NUM_NODES:?NODES is not set}}
slots=${SLOTS:-$(($(nproc) / ${THREADS:-1}))}
timeout=${NODES_TIMEOUT:-600}
directory=${NODES_DIR:-/tmp/kolo-nodes}
read -ra ssh_arguments <<<"${SSH_ARGUMENTS:-}"

# sshd must be called by its absolute path, because it executes itself again for each connection.
"${SSHD:-/usr/sbin/sshd}" -De -f "${SSHD_CONFIG:-$HOME/sshd_config}" &
server=$!

if ((node != 0)); then
  main=${MAIN_ADDRESS:-${AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS:?MAIN_ADDRESS is not set}}
  # The main node takes the address from the ssh connection, so that it can reach this node by it.
  # The file is written under another name and renamed, so that the main node never reads half a
  # file.
  report="mkdir -p $directory && echo \"\${SSH_CLIENT%% *} slots=$slots\" >$directory/.$node && mv $directory/.$node $directory/$node"
  # shellcheck disable=SC2029  # $report is expanded here: it contains the number of this node
  until ssh "${ssh_arguments[@]}" "$main" "$report"; do
    ((SECONDS < timeout)) || { echo "batch_node.sh: node $node cannot reach node 0 at $main" >&2; exit 1; }
    sleep 1
  done
  echo "batch_node.sh: node $node serves node 0 at $main" >&2
  wait "$server"
  exit
fi

mkdir -p "$directory"
read -r own _ < <(hostname -I)
echo "${OWN_ADDRESS:-$own} slots=$slots" >"$directory/0"
until (($(find "$directory" -name '[0-9]*' | wc -l) >= nodes)); do
  ((SECONDS < timeout)) || {
    echo "batch_node.sh: of $nodes nodes, these have reported within $timeout s:" >&2
    find "$directory" -name '[0-9]*' -printf '  %f\n' >&2
    exit 1
  }
  sleep 1
done
cat "$directory"/[0-9]* >"$directory/hostfile"
# The job ends when this process does, with its exit status.
exec "$(dirname "$0")/hosts.sh" "$directory/hostfile" "$@"
