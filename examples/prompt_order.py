"""Where should what changes stand? Exercise 7's coding agent, its prompt in a good and a bad order.

Prints:

system | preferences | playbook | history | retrieved | task
  reused  68.2 %, broken   0.8 %; Anthropic, 5 minutes: $1.57, $3.89 without a cache
system | retrieved | task | playbook | preferences | history
  reused   6.1 %, broken  63.0 %; Anthropic, 5 minutes: $4.86, $3.89 without a cache
the doctor's plan for the bad order:
  retrieved: move_last, 6.1 % reused
  task: move_last, 69.0 % reused
"""

from jaxmem.prompts import LogBuilder, PromptLog, Segment, diagnose, price, reuse

SESSIONS, TURNS = 6, 20
GOOD = ("system", "preferences", "playbook", "history", "retrieved", "task")
BAD = ("system", "retrieved", "task", "playbook", "preferences", "history")
KINDS = {"preferences": "memory", "playbook": "memory"}
BREAKPOINTS = ("playbook", "history")  # the agent's own, at the ends of what only grows


def prompts(order: tuple[str, ...]) -> PromptLog:
    """The agent's calls, a minute apart; names stand for texts, so that no text is needed."""
    log, playbook = LogBuilder(), [("lessons so far", 3_000)]
    for session in range(SESSIONS):
        history: list[tuple[str, int]] = []
        preferences = [(f"preferences {session}", 300)]  # changed between sessions, all at once
        for turn in range(TURNS):
            now = f"{session}.{turn}"
            parts = {
                "system": [("system", 1_000)],
                "preferences": preferences,
                "playbook": playbook,
                "history": history,
                "retrieved": [(f"code {now}", 4_000)],
                "task": [(f"task {now}", 200)],
            }
            segments = []
            for name in order:
                for text, tokens in parts[name]:
                    last = name in BREAKPOINTS and text == parts[name][-1][0]
                    kind = KINDS.get(name, name)
                    segments.append(Segment(name, kind, text.encode(), tokens, mark=last))
            time_s = 60.0 * (session * TURNS + turn)
            log.call(segments, session=str(session), time_s=time_s)
            history.append((f"turn {now}", 800))
        playbook.append((f"lesson {session}", 40))  # when a session ends
    return log.build()


def main() -> None:
    """Reuse and price of both orders, and what the doctor would do about the bad one."""
    for order in (GOOD, BAD):
        log = prompts(order)
        found = reuse(log, block_tokens=16, scope="all")
        paid = price(log, "anthropic-5m")
        broken = float(found.broken.sum()) / float(log.prompt_tokens.sum())
        print(" | ".join(order))
        print(
            f"  reused {100 * found.share:5.1f} %, broken {100 * broken:5.1f} %; Anthropic,"
            f" 5 minutes: ${paid.usd:.2f}, ${paid.usd_no_cache:.2f} without a cache"
        )
    print("the doctor's plan for the bad order:")
    for step in diagnose(log, scope="all").plan:
        remedy = step.remedied
        print(f"  {step.label}: {remedy.name}, {100 * remedy.reused_share:.1f} % reused")


if __name__ == "__main__":
    main()
