"""A frame of `digenctl top` as lines of styled text, at most `width` wide and `height` high. Imports rich.

Owns the layout. Invariants: nothing is wider or higher than asked for, whatever is shown; colour says nothing that the
glyphs do not.
"""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group
from rich.text import Text

from clients.chart import STAGING, bubble_glyphs, cells, glyph, legend, staged_cells
from clients.screen import STYLES
from clients.sparkline import sparkline
from clients.top_feed import Frame, Watched
from clients.verbs.nodes import doing
from clients.waiting_bytes import total
from clients.window import WorkerTime, times_of
from clients.words import age, number, plural, share
from digend.wire.views import JobView, NodeView

KIND_STYLES = {
    "generate": "green",
    "assist": "bright_cyan",
    "decode": "dark_green",
    "encode": "cyan",
    "score": "yellow",
    "update": "blue",
    "optimizer": "bright_magenta",
    "publish": "magenta",
    "stage": "magenta",
    "swap": "magenta",
    "switch": "bright_blue",
    "fetch": "cyan",
    "load": "bright_black",
    "evaluate": "white",
    "checkpoint": "bright_white",
    "idle": "bright_black",
}
BUBBLE_STYLE = "bold red"
KEYS = "q leaves; jobs and workers go on"

_MIN_TIMELINE = 12
_WIDE = 120
_BAR = 20


def screen_text(frame: Frame, width: int, height: int) -> Group:
    """Of exactly `height` lines, the last of which says which keys there are."""
    lines = frame_lines(frame, width, height - 1)
    return Group(*lines, *(Text() for _ in range(height - 1 - len(lines))), Text(KEYS[:width], style="dim"))


def frame_lines(frame: Frame, width: int, height: int) -> list[Text]:
    """At most `height`. The timelines go before jobs that wait, where there is no room for all."""
    head = [*_head(frame, width), Text()]
    jobs = [*_jobs(frame, width, max(2, (height - len(head)) // 3)), Text()]
    lines = [*head, *jobs, *_workers(frame, width, max(height - len(head) - len(jobs), 1))][:height]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
        line.no_wrap = True
    return lines


def _head(frame: Frame, width: int) -> Iterator[Text]:
    status = frame.status
    line = Text("digend", style="bold")
    parts = [
        f"driver epoch {status.epoch}, up {age(status.uptime_s)}",
        _queue("SQ", status.sq_depth, status.sq_oldest_s),
        _queue("UQ", status.uq_depth, status.uq_oldest_s),
        f"bubbles {share(status.bubble_share)}",
        plural(len(status.nodes), "worker"),
        *([f"tensors {held}"] if (held := total(status)) else []),
        *([frame.address] if width >= _WIDE else []),
    ]
    for part in parts:
        if line.cell_len + 2 + len(part) <= width:
            line.append(f"  {part}", style="default not bold")
    yield line
    if frame.away:
        yield Text(frame.away, style="black on yellow")
    for problem in status.problems[:3]:
        yield Text(f"problem: {problem}", style="red")


def _queue(name: str, depth: int, oldest_s: float | None) -> str:
    return f"{name} {depth}" + (f" ({age(oldest_s)})" if depth else "")


def _jobs(frame: Frame, width: int, room: int) -> Iterator[Text]:
    """Those that are looked at, two lines each, then those that wait."""
    if not frame.watched:
        yield Text("no jobs yet; the next step: digenctl submit JOB.toml", style="dim")
        return
    watched = frame.watched[: max(1, room // 2)]
    waiting = frame.waiting[: max(0, room - 2 * len(watched))]
    label = max(len(job.id) for job in (*(each.job for each in watched), *waiting))
    for each in watched:
        yield _job(each.job, label, width)
        yield _figures(each, width)
    for job in waiting:
        yield _row_start(job, label).append(f"  {job.reason}", style="dim")
    hidden = len(frame.watched) + len(frame.waiting) - len(watched) - len(waiting)
    if hidden:
        yield Text(f"and {plural(hidden, 'job')} more", style="dim")


def _row_start(job: JobView, label: int) -> Text:
    return Text(job.id.ljust(label)).append(f"  {job.state:<9}", style=STYLES.get(job.state, ""))


def _job(job: JobView, label: int, width: int) -> Text:
    line = _row_start(job, label)
    counted = f" {job.global_step}/{job.num_global_steps}"
    room = min(_BAR, width - line.cell_len - len(counted) - 2)
    if room >= 5:
        done = room * job.global_step // max(job.num_global_steps, 1)
        line.append("  ").append("━" * done, style="green").append("─" * (room - done), style="bright_black")
    line.append(counted)
    if job.reason:
        line.append(f"  {job.reason}", style="dim")
    return line


def _figures(watched: Watched, width: int) -> Text:
    line = Text("reward ")
    if watched.rewards:
        bars = sparkline(watched.rewards, min(40, width // 3))
        line.append(bars, style="green").append(f" {number(watched.rewards[-1])}")
    else:
        line.append("-")
    for part in _parts(watched):
        if line.cell_len + 2 + len(part) <= width:
            line.append(f"  {part}")
    return line


def _parts(watched: Watched) -> Iterator[str]:
    job, evaluation = watched.job, watched.evaluation
    yield f"policy version {job.policy_version}"
    if job.ranks > 1:
        yield f"{job.ranks} trainer ranks"
    if watched.step_s is not None:
        yield f"{age(watched.step_s)} a global step"
        if job.state == "running":
            yield f"about {age(watched.step_s * (job.num_global_steps - job.global_step))} left"
    if evaluation is not None:
        told = ", ".join(f"{name} {number(value)}" for name, value in evaluation.metrics.items())
        yield f"evaluation {evaluation.label}: {told}"


def _nobody(frame: Frame) -> str:
    """A recorder that has joined shows that the daemons are being started: the others load torch first."""
    if frame.status.nodes:
        return "no generator or trainer has joined yet: they load for some seconds; the next step: digenctl logs -f"
    return "no workers have joined; the next step: digend up NODE.toml"


def _workers(frame: Frame, width: int, room: int) -> list[Text]:
    """Header, a row a worker, the axis, the legend; as many as there is room for."""
    nodes = [node for node in frame.status.nodes if node.role != "recorder" or node.state in ("torpid", "lost")]
    nodes.sort(key=lambda node: node.name)
    if not nodes:
        return [Text(_nobody(frame), style="dim")]
    layout = _Layout(nodes, width)
    bubbles = bubble_glyphs(frame.pieces)
    shown = nodes[: max(room - 3, 1)]
    rows = [layout.header(frame)]
    seen: set[str] = set()
    spare = room - 3 - len(shown)
    for node in shown:
        own = [piece for piece in frame.pieces if piece.worker == node.name]
        row = cells(own, frame.start_ns, frame.end_ns, layout.timeline)
        seen |= set(row)
        rows.append(layout.row(node, row, bubbles, times_of(own, node.name, frame.start_ns, frame.end_ns)))
        staged = staged_cells(frame.staged, node.name, frame.start_ns, frame.end_ns, layout.timeline)
        if any(staged) and spare > 0:
            spare -= 1
            seen |= set(staged)
            rows.append(layout.below(staged))
    if len(shown) < len(nodes):
        rows.append(Text(f"and {plural(len(nodes) - len(shown), 'worker')} more", style="dim"))
    if room - len(rows) >= len(_gpus(shown)):
        rows += _gpus(shown)
    below = _legend(seen, bubbles, width)
    return [*rows, *[Text()] * (len(rows) + len(below) < room), *below]


def _gpus(nodes: Sequence[NodeView]) -> list[Text]:
    return [Text(f"{node.name}  {node.device}: ", style="dim").append(node.health) for node in nodes if node.health]


def _legend(seen: set[str], bubbles: Mapping[str, str], width: int) -> list[Text]:
    lines = [Text()]
    for what, entry in legend(seen, bubbles):
        if lines[-1].cell_len and lines[-1].cell_len + 2 + len(entry) > width:
            lines.append(Text())
        line = lines[-1]
        line.append("  " if line.cell_len else "").append(entry[0], style=_style(what)).append(entry[1:], style="dim")
    return lines


def _style(what: str) -> str:
    return BUBBLE_STYLE if what.startswith("bubble") else KIND_STYLES.get(what, "")


class _Layout:
    """Widths of the columns of one frame: name, state, timeline, share of bubbles, what it does now."""

    def __init__(self, nodes: Sequence[NodeView], width: int) -> None:
        self._names = _short({node.name for node in nodes})
        self._label = max(len(name) for name in self._names.values())
        self._state = max(len("STATE"), *(len(node.state) for node in nodes)) if width >= 50 else 0
        fixed = self._label + 2 + (self._state + 2 if self._state else 0) + 9
        self._now = min(48, (width - fixed) * 2 // 5)
        if self._now < 18 or width - fixed - self._now - 2 < _MIN_TIMELINE:
            self._now = 0
        self._since = self._now > 30
        self.timeline = max(width - fixed - (self._now + 2 if self._now else 0), 5)

    def header(self, frame: Frame) -> Text:
        window, end = f"last {age((frame.end_ns - frame.start_ns) / 1e9)}", "end" if frame.over else "now"
        state = f"{'STATE':<{self._state}}  " if self._state else ""
        axis = f"{window}{end:>{self.timeline - len(window)}}" if self.timeline > len(window) + 4 else window
        head = f"{'WORKER':<{self._label}}  {state}{axis:<{self.timeline}.{self.timeline}}   BUBBLE"
        return Text(head + ("  SINCE" * self._since + "  NOW" if self._now else ""), style="bold")

    def below(self, staged: Sequence[str]) -> Text:
        """The row of what comes in the background of the worker above."""
        before = self._label + 2 + (self._state + 2 if self._state else 0)
        line = Text(f"{STAGING:<{before}.{before}}", style="dim")
        for what in staged:
            line.append(glyph(what, {}), style=_style(what))
        return line

    def row(self, node: NodeView, row: Sequence[str], bubbles: Mapping[str, str], time: WorkerTime) -> Text:
        line = Text(self._names[node.name].ljust(self._label + 2))
        if self._state:
            line.append(node.state.ljust(self._state + 2), style=STYLES.get(node.state, ""))
        for what in row:
            line.append(glyph(what, bubbles), style=_style(what))
        known = sum(time.kinds.values())
        line.append(f"  {share(time.kinds.get('bubble', 0.0) / known if known else None):>7}")
        if self._now:
            since = f"{age(node.for_s):>7}" if self._since else ""
            now = node.reason or doing(node)
            now = now if node.rank is None else f"rank {node.rank} of {node.ranks}: {now}"
            line.append(f"{since}  {now}", style="dim" if node.reason else "")
        return line


def _short(names: set[str]) -> dict[str, str]:
    """Without the node, where all are of one."""
    nodes = {name.split("/")[0] for name in names}
    return {name: name.partition("/")[2] if len(nodes) == 1 and "/" in name else name for name in sorted(names)}
