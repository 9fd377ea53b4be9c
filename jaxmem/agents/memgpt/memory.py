"""What functions of the model work on."""

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jaxmem.agents.memgpt.working_context import WorkingContext
from jaxmem.agents.stores.store import Store

if TYPE_CHECKING:
    from jaxmem.agents.memgpt.functions import Function

PAGE = 5
"""Results of a search that are shown at once."""


class Memory:
    """What functions work on: the working context, the storages, and what is said to the user.

    Attributes:
      store: recall and archival storage.
      agent: whose.
      archive: whose archival storage.
      working: working context.
      own: functions that a user has added, by name.
      sent: texts sent to the user, in this round.
      paused_until_s: no timer wakes the agent before, seconds since 1970.
      page: results shown at once.
      most_characters: of a page of results.
      clock: the time now.
    """

    def __init__(
        self,
        store: Store,
        agent: str,
        working: WorkingContext,
        *,
        archive: str | None = None,
        own: Sequence["Function"] = (),
        page: int = PAGE,
        most_characters: int = 6_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Put together.

        Args:
          store: recall and archival storage.
          agent: whose.
          working: working context.
          archive: whose archival storage, the agent's own by default.
          own: functions that a user adds.
          page: results shown at once.
          most_characters: of a page of results.
          clock: the time now, seconds since 1970.
        """
        self.store, self.agent, self.working = store, agent, working
        self.archive = agent if archive is None else archive
        self.own = {one.name: one for one in own}
        self.page, self.most_characters, self.clock = page, most_characters, clock
        self.sent: list[str] = []
        self.paused_until_s = -math.inf
