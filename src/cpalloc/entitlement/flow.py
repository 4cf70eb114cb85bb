"""Maximum flow in whole numbers: Dinic's blocking flows, single augmentations and the cut they end in."""

from __future__ import annotations

from collections import deque


class Network:
    """A directed graph whose arcs carry whole amounts of any size; arc ``k`` and its reverse ``k ^ 1`` are a pair.

    ``residual[k]`` is what arc ``k`` can still take. Dinic (1970): phases of shortest augmenting paths.
    """

    def __init__(self) -> None:
        self.arcs: list[list[int]] = []
        self.head: list[int] = []
        self.residual: list[int] = []

    def node(self) -> int:
        """Add a node and return its number."""
        self.arcs.append([])
        return len(self.arcs) - 1

    def arc(self, tail: int, head: int, capacity: int) -> int:
        """Add an arc and return its number."""
        number = len(self.head)
        self.arcs[tail].append(number)
        self.arcs[head].append(number + 1)
        self.head += [head, tail]
        self.residual += [capacity, 0]
        return number

    def maximise(self, source: int, sink: int) -> int:
        """Send all that still can go from source to sink; return how much was added."""
        sent = 0
        while True:
            distance = self.distances(source)
            if distance[sink] < 0:
                return sent
            untried = [0] * len(self.arcs)
            while path := self._path(source, sink, distance, untried):
                step = min(self.residual[k] for k in path)
                self._push(path, step)
                sent += step

    def distances(self, source: int) -> list[int]:
        """Arcs from the source along arcs that can take more; -1 for nodes out of reach (the far side of the cut)."""
        distance = [-1] * len(self.arcs)
        distance[source] = 0
        queue = deque([source])
        while queue:
            tail = queue.popleft()
            for k in self.arcs[tail]:
                head = self.head[k]
                if self.residual[k] and distance[head] < 0:
                    distance[head] = distance[tail] + 1
                    queue.append(head)
        return distance

    def send_one(self, start: int, sink: int, closed: set[int]) -> bool:
        """Send one unit from ``start`` to the sink, if a path leads there that avoids ``closed`` nodes.

        When none does, every node reached is added to ``closed``: no path can leave them later either, because
        later paths never enter them.
        """
        if start in closed:
            return False
        reached_by = {start: -1}
        stack = [start]
        while stack and sink not in reached_by:
            tail = stack.pop()
            for k in self.arcs[tail]:
                head = self.head[k]
                if self.residual[k] and head not in closed and head not in reached_by:
                    reached_by[head] = k
                    stack.append(head)
        if sink not in reached_by:
            closed.update(reached_by)
            return False
        node = sink
        while (k := reached_by[node]) >= 0:
            self._push([k], 1)
            node = self.head[k ^ 1]
        return True

    def _path(self, source: int, sink: int, distance: list[int], untried: list[int]) -> list[int]:
        """One shortest augmenting path, depth first; ``untried[node]`` skips the arcs found useless in this phase."""
        path: list[int] = []
        node = source
        while node != sink:
            arcs = self.arcs[node]
            at = untried[node]
            while at < len(arcs) and not self._leads_on(arcs[at], distance[node] + 1, distance):
                at += 1
            untried[node] = at
            if at < len(arcs):
                path.append(arcs[at])
                node = self.head[arcs[at]]
            elif path:
                node = self.head[path.pop() ^ 1]
                untried[node] += 1
            else:
                return []
        return path

    def _leads_on(self, arc: int, next_distance: int, distance: list[int]) -> bool:
        return bool(self.residual[arc]) and distance[self.head[arc]] == next_distance

    def _push(self, path: list[int], step: int) -> None:
        for k in path:
            self.residual[k] -= step
            self.residual[k ^ 1] += step
