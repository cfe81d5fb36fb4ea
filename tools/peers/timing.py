# SPDX-License-Identifier: Apache-2.0
"""Times under CUDA graphs, and distances from a reference in double precision."""
import torch

WARM_UP = 3
REPLAYS = 200


def graph_of(call, repeats):
    """A graph of `repeats` calls; call(i) is the i-th."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(WARM_UP):
            call(i)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(repeats):
            call(i)
    return graph


def median_us(call, repeats, replays=REPLAYS):
    """Median of a call in microseconds, from replays of a graph of `repeats` of them."""
    graph = graph_of(call, repeats)
    times = []
    for _ in range(WARM_UP + replays):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / repeats)
    times = sorted(times[WARM_UP:])
    return times[len(times) // 2]


def distance(found, reference):
    """Relative L2, in double."""
    found, reference = found.double(), reference.double()
    return float((found - reference).norm() / reference.norm())


def check(name, found, reference, allowed):
    """Refuses to time what is wrong; NaN is wrong."""
    d = distance(found, reference)
    if not d <= allowed:
        raise SystemExit(f"{name}: relative L2 {d:.2e}, allowed {allowed:.0e}")
    return d
