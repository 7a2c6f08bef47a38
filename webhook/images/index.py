"""Which nodes have which layers, and how much of a pod's images that is.

A node has the layers of the images that its status lists. Sets of nodes are the bits of an integer: a score for 5,000
nodes takes a few operations on such integers for each layer, not 5,000.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import compress
from operator import or_
from typing import Final

import msgspec
from cachetools import LRUCache

from webhook.images.manifests import Layer
from webhook.images.objects import NodeNames

# kube-scheduler's MaxExtenderPriority (k8s.io/kube-scheduler/extender/v1).
MAX_SCORE: Final = 10
# Layers that are distinguished in one score, the largest ones; others count as not there.
MAX_GROUPS: Final = 64
# Sums that are distinguished; beyond it they are rounded down to a thousandth of all bytes.
_MAX_SUMS: Final = 512
_GRAIN: Final = 1024
# Images that nodes list and whose layers are kept; a cluster has some hundreds.
MAX_IMAGES: Final = 50_000
# Of all these images; tenants decide how many one has. Images beyond it stay unknown.
MAX_LAYERS: Final = 100_000
# Of the pods that come again and again; one for 5,000 nodes takes 300 KB.
_CACHED_TABLES: Final = 64
# Nodes whose text is put together again when one of them has another score.
_BLOCK: Final = 64
# All nodes are answered if this many times the nodes that were sent are at least as many.
_MOST: Final = 2
# The bits of a set as text, translated into a byte with the score for each node.
_MARKS: Final = tuple(bytes.maketrans(b"01", bytes((0, score))) for score in range(MAX_SCORE + 1))
# The text of an entry after its head, by score.
_TAILS: Final = tuple(b"%d}" % score for score in range(MAX_SCORE + 1))

LayerSizes = Mapping[str, Mapping[str, int]]
_Groups = tuple[tuple[int, int], ...]  # bytes, nodes that have them


class PlatformImage(msgspec.Struct, frozen=True, gc=False):
    """An image, by the digest of its manifest or index, on nodes of one platform, ``OS/ARCHITECTURE``.

    An index has other layers on each.
    """

    digest: str
    platform: str


class _Node(msgspec.Struct, gc=False):
    position: int
    platform: str
    images: frozenset[PlatformImage]


class _Table(msgspec.Struct):
    """The answers for one pod."""

    version: int  # of the names of nodes
    scores: bytes  # a byte for each position
    blocks: list[bytes]  # the text of `_BLOCK` positions each, with a comma before each entry; empty: not made yet


class LayerIndex:
    """The layers on all nodes.

    Attributes:
        platforms: the nodes of each platform, as the bits of an integer.
        denied: images that were not kept because there were `MAX_IMAGES`, or `MAX_LAYERS`, already.
    """

    def __init__(self) -> None:
        self._nodes: Final[dict[str, _Node]] = {}
        # By position, the text of an entry up to its score.
        self._heads: Final[list[bytes]] = []
        self._free: Final[list[int]] = []
        self.platforms: Final[dict[str, int]] = {}
        # Nodes by image, layers by image, images by layer, and nodes by layer as far as they have been computed.
        self._on: Final[dict[PlatformImage, int]] = {}
        self._layers: Final[dict[PlatformImage, tuple[str, ...]]] = {}
        self._images: Final[dict[str, set[PlatformImage]]] = {}
        self._holders: Final[dict[str, int]] = {}
        self._tables: Final[LRUCache[object, _Table]] = LRUCache(_CACHED_TABLES)
        self._version = 0
        self._kept_layers = 0
        self.denied = 0

    @property
    def known_images(self) -> int:
        """Images on nodes whose layers are known."""
        return len(self._layers)

    @property
    def unknown_images(self) -> int:
        """Images on nodes whose layers are not known."""
        return len(self._on) - len(self._layers)

    def put(self, name: str, platform: str, digests: Collection[str]) -> list[PlatformImage]:
        """Add a node with the digests of its images, or replace it; returns its new images whose layers are unknown."""
        node = self._nodes.get(name)
        if node is None or node.platform != platform:
            if node is not None:
                self.remove(name)
            position = self._free.pop() if self._free else len(self._heads)
            self._heads[position : position + 1] = [b',{"Host":%s,"Score":' % msgspec.json.encode(name)]
            self._version += 1
            node = self._nodes[name] = _Node(position, platform, frozenset())
            self.platforms[platform] = self.platforms.get(platform, 0) | 1 << position
        bit = 1 << node.position
        images = frozenset(PlatformImage(digest, platform) for digest in digests)
        for image in node.images - images:
            self._take(image, bit)
        kept = set(node.images & images)
        unknown = []
        for image in images - node.images:
            if image not in self._on and len(self._on) >= MAX_IMAGES:
                self.denied += 1
                continue
            kept.add(image)
            self._on[image] = self._on.get(image, 0) | bit
            self._forget_holders(image)
            if image not in self._layers:
                unknown.append(image)
        node.images = frozenset(kept)
        return unknown

    def remove(self, name: str) -> None:
        """Remove a node."""
        node = self._nodes.pop(name, None)
        if node is None:
            return
        bit = 1 << node.position
        for image in node.images:
            self._take(image, bit)
        self.platforms[node.platform] &= ~bit
        if not self.platforms[node.platform]:
            del self.platforms[node.platform]
        self._heads[node.position] = b""
        self._free.append(node.position)
        self._version += 1

    def is_on_nodes(self, image: PlatformImage) -> bool:
        """Whether a node lists an image."""
        return image in self._on

    def learn(self, image: PlatformImage, layers: Iterable[Layer]) -> None:
        """Take the layers of an image that nodes list; others are not kept."""
        if image not in self._on or image in self._layers:
            return
        digests = tuple(layer.digest for layer in layers)
        if self._kept_layers + len(digests) > MAX_LAYERS:
            self.denied += 1
            return
        self._kept_layers += len(digests)
        self._layers[image] = digests
        for digest in digests:
            self._images.setdefault(digest, set()).add(image)
            self._holders.pop(digest, None)

    def answer(self, layer_sizes: LayerSizes, names: NodeNames | Sequence[str] | None = None) -> bytes:
        """The scores of some nodes, or of all, as kube-scheduler expects them: a HostPriorityList as JSON.

        It takes a node that is left out for one with score 0, and passes over nodes that it did not send. So where it
        has sent most nodes, the answer has all of them: most of that text is known already. ``layer_sizes`` is the
        sizes of a pod's layers, by digest, for each platform.
        """
        table = self._table(layer_sizes)
        nodes = len(table.scores) - table.scores.count(0)
        if not nodes:
            return b"[]"
        if names is not None and len(names) * _MOST < nodes:
            # Names of other nodes are passed over.
            positions = [node.position for node in filter(None, map(self._nodes.get, names))]
            scores = bytes([table.scores[each] for each in positions])
            return _list_of([_entries([self._heads[each] for each in positions], scores)])
        if not table.blocks:
            starts = range(0, len(table.scores), _BLOCK)
            table.blocks = [self._block(table.scores, start) for start in starts]
        return _list_of(table.blocks)

    def _table(self, layer_sizes: LayerSizes) -> _Table:
        key = tuple((platform, tuple(sizes.items())) for platform, sizes in layer_sizes.items())
        scores = self._scores(layer_sizes)
        table = self._tables.get(key)
        if table is None or table.version != self._version:
            table = _Table(self._version, scores, [])
            self._tables[key] = table
        if table.scores != scores:
            if table.blocks:
                # From one pod to the next, a few nodes have pulled an image.
                changed = int.from_bytes(table.scores, "little") ^ int.from_bytes(scores, "little")
                positions = compress(range(len(scores)), changed.to_bytes(len(scores), "little"))
                for number in {position // _BLOCK for position in positions}:
                    table.blocks[number] = self._block(scores, number * _BLOCK)
            table.scores = scores
        return table

    def _block(self, scores: bytes, start: int) -> bytes:
        return _entries(self._heads[start : start + _BLOCK], scores[start : start + _BLOCK])

    def _scores(self, layer_sizes: LayerSizes) -> bytes:
        """The scores of all nodes, a byte for each position."""
        count, marks = len(self._heads), 0
        for platform, sizes in layer_sizes.items():
            nodes = self.platforms.get(platform, 0)
            for score, members in _scores(nodes, sum(sizes.values()), self._groups(sizes)):
                flags = bin(members)[:1:-1].encode().translate(_MARKS[score])
                marks |= int.from_bytes(flags, "little")
        return marks.to_bytes(count, "little")

    def _groups(self, sizes: Mapping[str, int]) -> _Groups:
        """The bytes of the layers that the same nodes have, for those that any node has; the largest first."""
        groups: dict[int, int] = {}
        for digest, size in sizes.items():
            holders = self._holders_of(digest)
            if holders and size:
                groups[holders] = groups.get(holders, 0) + size
        ordered = sorted(((size, holders) for holders, size in groups.items()), reverse=True)
        return tuple(ordered[:MAX_GROUPS])

    def _holders_of(self, digest: str) -> int:
        """The nodes that have a layer."""
        holders = self._holders.get(digest)
        # Pods name layers, too: only those of nodes are kept.
        if holders is None and (images := self._images.get(digest)) is not None:
            holders = self._holders[digest] = reduce(or_, map(self._on.__getitem__, images), 0)
        return holders or 0

    def _take(self, image: PlatformImage, bit: int) -> None:
        """Take an image from a node; the last node takes its layers along."""
        left = self._on[image] & ~bit
        self._forget_holders(image)
        if left:
            self._on[image] = left
            return
        del self._on[image]
        digests = self._layers.pop(image, ())
        self._kept_layers -= len(digests)
        for digest in digests:
            images = self._images[digest]
            images.discard(image)
            if not images:
                del self._images[digest]

    def _forget_holders(self, image: PlatformImage) -> None:
        for digest in self._layers.get(image, ()):
            self._holders.pop(digest, None)


def _entries(heads: Sequence[bytes], scores: bytes) -> bytes:
    """The text of those nodes that have a score above 0, a comma before each."""
    chosen = list(compress(heads, scores))
    parts = [b""] * (2 * len(chosen))
    parts[::2] = chosen
    parts[1::2] = map(_TAILS.__getitem__, filter(None, scores))
    return b"".join(parts)


def _list_of(texts: Iterable[bytes]) -> bytes:
    """A list of the entries in texts, of which any may be empty."""
    filled = list(filter(None, texts))
    if not filled:
        return b"[]"
    filled[0] = b"[" + filled[0][1:]
    return b"".join((*filled, b"]"))


def _scores(nodes: int, total: int, groups: _Groups) -> Iterator[tuple[int, int]]:
    """The nodes of each score above 0, by the bytes of groups of layers that the same nodes have, and of all layers."""
    sums = {0: nodes}
    for size, holders in groups:
        split: dict[int, int] = {}
        for have, members in sums.items():
            inside = members & holders
            for key, part in ((have + size, inside), (have, members ^ inside)):
                if part:
                    split[key] = split.get(key, 0) | part
        sums = split
        if len(split) > _MAX_SUMS:
            grain, sums = max(1, -(-total // _GRAIN)), {}
            for have, members in split.items():
                rounded = have - have % grain
                sums[rounded] = sums.get(rounded, 0) | members
    by_score: dict[int, int] = {}
    for have, members in sums.items():
        if score := MAX_SCORE * have // total if total else 0:
            by_score[score] = by_score.get(score, 0) | members
    yield from by_score.items()
