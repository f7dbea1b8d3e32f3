# Several hosts on this machine for tests: network namespaces on a switch, each with its own name, addresses and /dev/shm. Sourced.
#   host_lab_missing           prints why it cannot be had here; nothing when it can
#   host_lab_up N DIRECTORY    makes h1 … hN; DIRECTORY keeps their /etc/hosts
#   host_lab_on HOST COMMAND…  runs a command on a host
#   host_lab_cut HOST          pulls its cable; host_lab_mend HOST plugs it in again
#   host_lab_down              removes them; their processes are their owner's
# The switch is a namespace as well, so that no interface of the machine is touched. mpirun starts its daemons by host_lab_agent,
# in place of ssh, which does not need the network: a host that is cut off can still be entered, as by a console.
host_lab_support=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")

host_lab_missing() {
  local program
  for program in ip nsenter unshare mpirun; do
    command -v $program > /dev/null || { echo "$program is not installed (Debian: iproute2, util-linux)"; return; }
  done
  [ "$(id -u)" -eq 0 ] || { echo "hosts of one's own need root"; return; }
  local probe=hadal-probe-$$
  ip netns add $probe 2> /dev/null && ip netns del $probe || echo "network namespaces are not allowed here"
}

host_lab_up() {
  export HOST_LAB=$2 HOST_LAB_NAME=hadal$$
  host_lab_size=$1
  local switch=$HOST_LAB_NAME-switch host
  mkdir -p "$HOST_LAB" && echo "127.0.0.1 localhost" > "$HOST_LAB/hosts" || return 1
  ip netns add "$switch" && ip -n "$switch" link add switch type bridge && ip -n "$switch" link set switch up || return 1
  for host in $(seq "$1"); do
    echo "10.77.0.$host h$host" >> "$HOST_LAB/hosts"
    ip netns add "$HOST_LAB_NAME-h$host" &&
      ip -n "$HOST_LAB_NAME-h$host" link add lan type veth peer name "port$host" netns "$switch" &&
      ip -n "$switch" link set "port$host" master switch up &&
      ip -n "$HOST_LAB_NAME-h$host" addr add "10.77.0.$host/24" dev lan &&
      ip -n "$HOST_LAB_NAME-h$host" link set lan up && ip -n "$HOST_LAB_NAME-h$host" link set lo up || return 1
  done
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
  export OMPI_MCA_plm=rsh OMPI_MCA_plm_rsh_agent="$host_lab_support/host_lab_agent"
  export OMPI_MCA_btl=self,vader,tcp OMPI_MCA_btl_tcp_if_include=lan OMPI_MCA_oob_tcp_if_include=lan
  # Open MPI 5 has other names; shared memory is its "sm".
  export PRTE_MCA_plm=ssh PRTE_MCA_plm_ssh_agent="$host_lab_support/host_lab_agent" PRTE_MCA_prte_if_include=lan
  case $(mpirun --version) in *"Open MPI) 5"*) export OMPI_MCA_btl=self,sm,tcp ;; esac
}

host_lab_on() { "$host_lab_support/host_lab_agent" "$@"; }
host_lab_cut() { ip -n "$HOST_LAB_NAME-$1" link set lan down; }
host_lab_mend() { ip -n "$HOST_LAB_NAME-$1" link set lan up; }

host_lab_down() {
  local host
  for host in $(seq "${host_lab_size:-0}"); do ip netns del "$HOST_LAB_NAME-h$host" 2> /dev/null; done
  [ -z "${HOST_LAB_NAME:-}" ] || ip netns del "$HOST_LAB_NAME-switch" 2> /dev/null
}
