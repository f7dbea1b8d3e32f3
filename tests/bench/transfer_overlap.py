"""How much of a traced run's communication was hidden behind computation. Usage: transfer_overlap.py TRACE.json

Pipeline: a message is in flight from the end of its send to its arrival at the receiver. In that time the receiver computes (hidden),
waits (exposed), or does something else. Arrivals are seen between sublayers, so the time in flight is an upper bound.
Replicas: a bucket of gradients is in flight from when its owner's own part is complete until all parts are added; what of that lies
under the owner's backward is hidden, what lies behind its last backward is exposed. Bars overlap: their union counts.
"""
import collections
import json
import sys


def overlap(begin, end, spans):
    return sum(max(0.0, min(end, e) - max(begin, b)) for b, e in spans)


def union(spans):
    merged = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return merged


def length(spans):
    return sum(end - begin for begin, end in spans)


def report_messages(bars, compute, waits, step_us):
    flight = hidden = exposed = 0.0
    without_wait = 0
    for begin, end, receiver in bars:
        mine = overlap(begin, end, waits[receiver])
        flight += end - begin
        hidden += overlap(begin, end, compute[receiver])
        exposed += mine
        without_wait += mine == 0.0
    print(f"  pipeline: {len(bars)} messages, {flight / 1e3:.1f} ms in flight: the receiver computed in {hidden / flight:.1%} of it, "
          f"waited in {exposed / flight:.1%} ({exposed / 1e3:.1f} ms, {exposed / step_us:.2%} of the steps); "
          f"{without_wait / len(bars):.0%} of the messages cost no wait at all")


def report_gradients(bars, compute, step_us):
    of_rank = collections.defaultdict(list)
    for begin, end, owner in bars:
        of_rank[owner].append((begin, end))
    flight = hidden = 0.0
    for rank, spans in of_rank.items():
        for begin, end in union(spans):
            flight += end - begin
            hidden += overlap(begin, end, compute[rank])
    print(f"  replicas: {len(bars)} buckets of gradients, {flight / 1e3:.1f} ms in flight: under the backward {hidden / flight:.1%}, "
          f"exposed {(flight - hidden) / 1e3:.1f} ms ({(flight - hidden) / len(of_rank) / step_us:.2%} of the steps)")


def main(path):
    events = json.load(open(path))["traceEvents"]
    compute, waits = collections.defaultdict(list), collections.defaultdict(list)
    ends = collections.defaultdict(dict)
    step_us = 0.0
    for event in events:
        if event["ph"] == "X":
            span = (event["ts"], event["ts"] + event["dur"])
            if event["cat"] in ("forward", "backward"):
                compute[event["pid"]].append(span)
            elif event["tid"] == 3:
                waits[event["pid"]].append(span)
            elif event["cat"] == "step" and event["pid"] == 0:
                step_us += event["dur"]
        elif event["ph"] in "be":
            ends[event["id"]][event["ph"]] = event
    bars = {"message": [], "gradients": []}
    for bar in ends.values():
        kind = "gradients" if bar["b"]["name"].startswith("replicas") else "message"
        bars[kind].append((bar["b"]["ts"], bar["e"]["ts"], bar["b"]["pid"]))
    print(f"  steps {step_us / 1e3:.0f} ms in all")
    if bars["message"]:
        report_messages(bars["message"], compute, waits, step_us)
    if bars["gradients"]:
        report_gradients(bars["gradients"], compute, step_us)


main(sys.argv[1])
