"""Where one or two kernels stand on a common slider: at a step of a head, or at a launch where that is all there is."""

from dataclasses import dataclass

import streamlit as st

from app import place
from app.subject import Subject
from app.tile_moment import Moment

LAUNCH = "tile.launch"


@dataclass(frozen=True)
class Standing:
    """A subject at step `at` of `steps`; `moment` is None where its steps are its launches."""

    subject: Subject
    at: int
    steps: int
    moment: Moment | None = None

    @classmethod
    def of(cls, subject: Subject, head: int, at: int) -> "Standing":
        """At a step of the walk of one (batch, head) of the problem, as one number, or at a launch; clamped."""
        walk = subject.schedule.walk
        if walk is None:
            steps = len(subject.schedule.launches)
            return cls(subject, min(max(at, 0), steps - 1), steps)
        batch_head, _ = walk.grid.place_of(*divmod(head, subject.problem.heads), 0)
        return cls.at_moment(subject, Moment.of_head(walk, batch_head, at))

    @classmethod
    def at_moment(cls, subject: Subject, moment: Moment) -> "Standing":
        """At a moment of the subject's walk."""
        return cls(subject, moment.head_step, moment.head_steps, moment)

    @classmethod
    def here(cls, subject: Subject) -> "Standing":
        """At the place that the pages share."""
        walk = subject.schedule.walk
        if walk is not None:
            return cls.at_moment(subject, place.here(walk))
        last = len(subject.schedule.launches) - 1
        return cls.of(subject, 0, int(st.session_state.get(LAUNCH, last)))

    @property
    def head(self) -> int:
        """The (batch, head) of the problem looked at, the first in the Q tile; a launch works on all of them."""
        if self.moment is None:
            return 0
        batch, head, _ = self.moment.walk.grid.query_of(self.moment.head, self.moment.rows[0])
        return batch * self.subject.problem.heads + head

    @property
    def query_heads(self) -> int:
        """Query heads whose rows are cut together: 1 without GQA packing."""
        return 1 if self.moment is None else self.moment.walk.grid.packs

    def moved_to(self, at: int) -> "Standing":
        """The same at another step."""
        return Standing.of(self.subject, self.head, at)

    def go(self) -> None:
        """Make this the place that the pages share."""
        if self.moment is None:
            st.session_state[LAUNCH] = self.at
        else:
            place.go_to(self.moment)

    def bytes_of_head(self) -> dict[tuple[str, str], float]:
        """Bytes asked for so far by (tensor, read or write); of what works on several heads, one head's share."""
        if self.moment is not None:
            moved = self.moment.moved(self.subject.tensor_bytes)
            return {(part.tensor, part.way): part.head / self.query_heads for part in moved}
        found: dict[tuple[str, str], float] = {}
        copies = self.subject.problem.batch * self.subject.problem.heads
        for index, launch in enumerate(self.subject.schedule.launches):
            for way, part in (("read", launch.reads), ("write", launch.writes)):
                for tensor, size in part.items():
                    so_far = size / copies if index <= self.at else 0.0
                    found[tensor, way] = found.get((tensor, way), 0.0) + so_far
        return found


@dataclass(frozen=True)
class Pair:
    """One or two kernels on one slider: it counts the leader's steps, the other stands at the same share of its own."""

    first: Standing
    second: Standing | None = None

    @classmethod
    def here(cls, first: Subject, second: Subject | None) -> "Pair":
        """At the shared place, as the kernel with more steps comes to it."""
        one = Standing.here(first)
        if second is None:
            return cls(one)
        other = Standing.here(second)
        if other.steps > one.steps:
            return cls(_follow(other, first), other)
        return cls(one, _follow(one, second))

    @property
    def leader(self) -> Standing:
        """The one with more steps."""
        longer = self.second is not None and self.second.steps > self.first.steps
        return self.second if self.second is not None and longer else self.first

    @classmethod
    def beside(cls, first: Standing, second: Subject) -> "Pair":
        """`first` where it is, and the other one at the same share."""
        steps = Standing.of(second, first.head, 0).steps
        if steps <= first.steps:
            return cls(first, _follow(first, second))
        return cls(first, Standing.of(second, first.head, (first.at + 1) * steps // first.steps - 1))

    def go(self, at: int) -> None:
        """Bring the leader to a step, and so both."""
        self.leader.moved_to(at).go()

    def go_with(self, follower: Standing) -> None:
        """Bring the leader to where the other one stands at `follower`."""
        steps = self.leader.steps
        self.leader.moved_to((follower.at + 1) * steps // follower.steps - 1).go()


def _follow(leader: Standing, subject: Subject) -> Standing:
    """A shorter subject at the leader's share of its steps, rounded up, so that both end together."""
    steps = Standing.of(subject, leader.head, 0).steps
    return Standing.of(subject, leader.head, -(-(leader.at + 1) * steps // leader.steps) - 1)
