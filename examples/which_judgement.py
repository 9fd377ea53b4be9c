"""Which judgement must the model of a mem0-like memory get right? Slopes, then one sweep.

Prints (to ± 0.02):

recall           -0.71 points of current values a point of errors
change_as_known  -0.48 points of current values a point of errors
delete_only      -0.41 points of current values a point of errors
recall 1.0: two hops 0.65
recall 0.8: two hops 0.47
recall 0.6: two hops 0.29
"""

from functools import partial

from jaxmem.dialogue import error_sweep, sensitivity
from jaxmem.dialogue.systems import Rates, mem0g

OURS = Rates(recall=0.9, change_as_known=0.2, delete_only=0.05)
CONVERSATIONS = 100

slopes = sensitivity(mem0g, OURS, CONVERSATIONS, names=("recall", "change_as_known", "delete_only"))
for row in slopes:
    if row["kind"] == "current":
        print(f"{row['rate']:16} {row['slope']:+.2f} points of current values a point of errors")

no_hop = partial(mem0g, hop=False)
for row in error_sweep(no_hop, {"recall": [1.0, 0.8, 0.6]}, OURS, CONVERSATIONS):
    if row["kind"] == "two_hop":
        print(f"recall {row['value']:.1f}: two hops {row['accuracy']:.2f}")
