"""Profiles and runs in turn; see planner_accuracy.sh, which prepares the corpus in the working directory."""

import json
import re
import statistics
import subprocess
import sys
import time

SHAPES = {
    "narrow 12L-12L": "encoder_layers: 12 decoder_layers: 12 d_model: 64 d_ff: 256 heads: 4",
    "wide 3L-3L": "encoder_layers: 3 decoder_layers: 3 d_model: 256 d_ff: 1024 heads: 4",
}
# name, shape, ranks, threads, micro-batches x tokens, settings. Layouts with one `group` do the same step with all cores.
NARROW, WIDE = SHAPES
LAYOUTS = [
    ("1 rank x 1", NARROW, 1, 1, (6, 256), {}, None),
    ("1 rank x 1, recompute 5", NARROW, 1, 1, (6, 256), {"pipeline.recompute_every": 5}, None),
    ("1 rank x 2", NARROW, 1, 2, (6, 256), {}, "narrow"),
    ("2 stages, 1f1b", NARROW, 2, 1, (6, 256), {"pipeline.stages": 2}, "narrow"),
    ("2 stages, gpipe", NARROW, 2, 1, (6, 256), {"pipeline.stages": 2, "pipeline.schedule": "gpipe"}, "narrow"),
    ("2 stages x 2 chunks", NARROW, 2, 1, (6, 256),
     {"pipeline.stages": 2, "pipeline.chunks": 2, "pipeline.schedule": "interleaved_1f1b"}, "narrow"),
    ("2 stages, recompute 5", NARROW, 2, 1, (6, 256), {"pipeline.stages": 2, "pipeline.recompute_every": 5}, "narrow"),
    ("2 replicas", NARROW, 2, 1, (6, 256), {"pipeline.replicas": 2}, "narrow"),
    ("1 rank x 1", WIDE, 1, 1, (4, 512), {}, None),
    ("1 rank x 2", WIDE, 1, 2, (4, 512), {}, "wide"),
    ("2 stages, 1f1b", WIDE, 2, 1, (4, 512), {"pipeline.stages": 2}, "wide"),
    ("2 replicas", WIDE, 2, 1, (4, 512), {"pipeline.replicas": 2}, "wide"),
]
STEPS = 6  # of a run; the first one pages memory in and does not count


class Layout:
  def __init__(self, number, name, shape, ranks, threads, batch, settings, group):
    self.name, self.shape, self.group = name, shape, group
    self.file = f"layout_{number}.textproto"
    self.number = number
    with open(self.file, "w") as f:
      f.write('data { train: "data/train" }\n'
              f"model {{ {SHAPES[shape]} max_positions: 128 dropout: 0.1 }}\n"
              f"batch {{ micro_batches: {batch[0]} source_tokens: {batch[1]} target_tokens: {batch[1]} }}\n"
              f"pipeline {{ threads: {threads} }}\n"
              f"learning_rate {{ warmup_updates: 1 peak: 1e-5 }}\n"
              f"stop {{ steps: {STEPS} }}\n"
              "instruments { enabled: false }\ncheckpoint { save_at_end: false }\n")
    self.ranks, self.threads = ranks, threads
    self.flags = [x for key, value in settings.items() for x in ("--set", f"{key}={value}")]
    self.rounds = []


def run(*command, ranks=1):
  launcher = ["mpirun", "-n", str(ranks), "--bind-to", "none", "--oversubscribe"] if ranks > 1 else []
  done = subprocess.run([*launcher, hadal, *command], capture_output=True, text=True)
  if done.returncode != 0:
    sys.exit(f"{' '.join(command)}: {done.stderr}")
  return done.stdout


def products(layout):
  text = run("bench", "profile", layout.file, "--products", "--threads", str(layout.threads), ranks=layout.ranks)
  return float(re.match(r"[0-9.]+", text).group())


def profile_of(layout):
  """A profile, its speed of products, and what processes take; layouts that compute alike share one."""
  before = products(layout)
  run("bench", "profile", layout.file, "--threads", str(layout.threads), "--rounds", "3", "--out", "profile", ranks=layout.ranks)
  with open("profile") as f:
    process_bytes = int(re.search(r"process_bytes: (\d+)", f.read()).group(1))
  return (before + products(layout)) / 2, process_bytes


def measure(layout, round_number, profile):
  profile_speed, process_bytes = profile
  before = products(layout)
  directory = f"run_{layout.number}_{round_number}"
  run("train", layout.file, *layout.flags, "--run-dir", directory, ranks=layout.ranks)
  speed = (before + products(layout)) / 2
  plan = json.loads(run("plan", layout.file, *layout.flags, "--ranks", str(layout.ranks), "--threads", str(layout.threads),
                        "--profile", "profile", "--json"))
  with open(f"{directory}/metrics.jsonl") as f:
    steps = [event for event in map(json.loads, f) if event["event"] == "step"]
  stages = steps[-1]["stages"]
  # A run records each stage's fullest replica.
  arenas = [memory["arena_bytes"] for memory in plan["memory"]]
  replicas = layout.ranks // len(stages)
  arenas = [max(arenas[i:i + replicas]) for i in range(0, len(arenas), replicas)]
  assert arenas == [stage["arena_bytes"] for stage in stages], "the planned arenas are not the allocated ones"
  layout.rounds.append({
      "predicted": plan["step_seconds"] * profile_speed,
      "measured": statistics.median(step["step_seconds"] for step in steps[1:]) * speed,
      "gflops": speed,
      "tokens": statistics.mean(step["target_tokens"] for step in steps[1:]),
      # Of the stage that is furthest off.
      "memory": max(((arena + process_bytes) / stage["held_bytes"] for arena, stage in zip(arenas, stages)),
                    key=lambda ratio: abs(ratio - 1)),
      "held": max(stage["held_bytes"] for stage in stages),
      "peak": max(stage["peak_resident_bytes"] for stage in stages),
      "predicted_bytes": max(arenas) + process_bytes,
  })


def median(layout, key):
  return statistics.median(one[key] for one in layout.rounds)


hadal, rounds, most_seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
layouts = [Layout(i, *row) for i, row in enumerate(LAYOUTS)]
began = time.time()
done = 0
while done < rounds and (done + 1) / max(done, 1) * (time.time() - began) < most_seconds:
  computing = None
  for one_layout in layouts:
    alike = (one_layout.shape, one_layout.ranks, one_layout.threads)
    if alike != computing:
      computing, profile = alike, profile_of(one_layout)
    measure(one_layout, done, profile)
    print(f"{time.time() - began:.0f} s: {one_layout.shape}, {one_layout.name}", file=sys.stderr, flush=True)
  done += 1
print(f"# {done} rounds of profile and run in turn, {STEPS - 1} steps a run, {time.time() - began:.0f} s; load after: "
      f"{' '.join(open('/proc/loadavg').read().split()[:3])}")
print("# predicted and measured: step at the median speed of products, after dividing both by the calibration around them;")
print("# error: median over the rounds, spread: (largest - smallest) measured / median; memory: held between steps,")
print("# fullest rank; peak: inside steps, and with pages of files")
print(f"{'model':<16} {'layout':<29} {'predicted':>10} {'measured':>10} {'error':>7} {'spread':>7} {'memory':>10} {'measured':>10} "
      f"{'error':>7} {'peak':>10}")
errors, memory_errors = [], []
for layout in layouts:
  speed = median(layout, "gflops")
  error = statistics.median(one["predicted"] / one["measured"] for one in layout.rounds) - 1
  measured = [one["measured"] for one in layout.rounds]
  spread = (max(measured) - min(measured)) / statistics.median(measured)
  memory_error = median(layout, "memory") - 1
  errors.append(abs(error))
  memory_errors.append(abs(memory_error))
  print(f"{layout.shape:<16} {layout.name:<29} {1e3 * median(layout, 'predicted') / speed:7.1f} ms {1e3 * median(layout, 'measured') / speed:7.1f} ms "
        f"{100 * error:+6.1f}% {100 * spread:6.1f}% {median(layout, 'predicted_bytes') / 2**20:6.1f} MiB "
        f"{median(layout, 'held') / 2**20:6.1f} MiB {100 * memory_error:+6.1f}% {median(layout, 'peak') / 2**20:6.1f} MiB")
print(f"largest error: step {100 * max(errors):.1f}% (goal 15%), memory {100 * max(memory_errors):.1f}% (goal 2%)")
for group in sorted({layout.group for layout in layouts if layout.group}):
  members = [layout for layout in layouts if layout.group == group]

  def cost(layout, key):
    return median(layout, key) / median(layout, "gflops") / median(layout, "tokens")

  choice, best = (min(members, key=lambda layout: cost(layout, key)) for key in ("predicted", "measured"))
  print(f"{group}: the planner would choose {choice.name}, the fastest was {best.name}: "
        f"{100 * (cost(choice, 'measured') / cost(best, 'measured') - 1):.1f}% slower a token")
