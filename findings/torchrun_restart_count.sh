#!/usr/bin/env bash
# PyTorch 2.15.0: after a restart the ranks of a job of torchrun disagree about TORCHELASTIC_RESTART_COUNT, by its documentation the number of
# restarts of the worker group. Each node counts the failures of its own workers; a restart that another node's failure asks for does not
# count. So ranks that load a checkpoint if the count is not 0 start together with ranks that begin anew, and log folders named by it are
# shared. Open as an issue of PyTorch since 2023 (108158). Two agents on this machine stand for two nodes.
. "$(dirname "$0")/support.sh"
packages torch==2.15.0 numpy==2.4.6
cat > "$folder/work" <<'WORK'
#!/usr/bin/env bash
# At the first start the worker of the second node fails, and that of the first is at work; at the next one both are done at once.
seen=${0%/*}/node.$NODE
echo "$TORCHELASTIC_RESTART_COUNT" >> "$seen"
[ "$(wc -l < "$seen")" -eq 1 ] || exit 0
[ "$NODE" = 1 ] || exec sleep 300
exit 3
WORK
chmod +x "$folder/work"
export HOME=$folder CUDA_VISIBLE_DEVICES='' OMP_NUM_THREADS=1
port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
for node in 0 1; do
  NODE=$node "$folder/python/bin/torchrun" --nnodes=2 --nproc-per-node=1 --max-restarts=3 --rdzv-backend=c10d --rdzv-id=job --rdzv-endpoint="127.0.0.1:$port" \
    --local-addr=127.0.0.1 --no-python "$folder/work" > "$folder/out.$node" 2>&1 &
done
wait
"$python" -c 'import torch; print("PyTorch", torch.__version__, "torchrun: two nodes; the worker of the second fails once, the job restarts")'
for node in 0 1; do
  seen[node]=$(paste -sd ' ' "$folder/node.$node") || { cat "$folder/out.$node" >&2; exit 2; }
  echo "TORCHELASTIC_RESTART_COUNT of node $node: expected 0 1, seen ${seen[node]}"
done
check test "${seen[*]}" = '0 0 0 1'
