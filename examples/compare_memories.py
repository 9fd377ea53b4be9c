"""mem0's graph against RAG on 200 conversations: what is remembered, and what it costs.

Prints (to ± 0.01):

mem0g         right 0.837 (0.824 .. 0.849)  read  269 tokens  write 365 calls
RAG 128 x 16  right 0.855 (0.849 .. 0.860)  read 2456 tokens  write   0 calls
RAG 128 x 16 is better than mem0g by 0.018 (0.005 .. 0.032)
current: RAG 128 x 16 is better than mem0g by 0.106 (0.096 .. 0.116)
previous: RAG 128 x 16 is better than mem0g by 0.239 (0.221 .. 0.258)
two_hop: mem0g is better than RAG 128 x 16 by 0.505 (0.469 .. 0.540)
"""

from jaxmem.dialogue import LECTURE_KINDS, accuracy, compare, evaluate, per_question
from jaxmem.dialogue.systems import Rates, mem0g, rag

CONVERSATIONS = 200
SYSTEMS = {
    "mem0g": mem0g(Rates(recall=0.94, change_as_known=0.10)),
    "RAG 128 x 16": rag(chunk_tokens=128, count=16),
}

results = evaluate(SYSTEMS, CONVERSATIONS)
for name, judged in results.items():
    mean, low, high = accuracy(judged, LECTURE_KINDS)
    tokens = per_question(judged, judged.read.read_tokens, LECTURE_KINDS).mean
    calls = judged.write.calls.sum(-1).mean()
    print(
        f"{name:13} right {mean:.3f} ({low:.3f} .. {high:.3f})"
        f"  read {tokens:4.0f} tokens  write {calls:3.0f} calls"
    )
first, second = results.values()
print(compare(second, first, LECTURE_KINDS).words)
for kind in LECTURE_KINDS:
    print(f"{kind}: {compare(second, first, kind).words}")
