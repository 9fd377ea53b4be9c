"""Which judgement must the model of a mem0-like memory get right?

Prints (to ± 0.02):

recall           -0.71 points of current values a point of errors
change_as_known  -0.48 points of current values a point of errors
delete_only      -0.41 points of current values a point of errors
"""

from jaxmem.dialogue import sensitivity
from jaxmem.dialogue.systems import Rates, mem0g

OURS = Rates(recall=0.9, change_as_known=0.2, delete_only=0.05)
CONVERSATIONS = 100

slopes = sensitivity(mem0g, OURS, CONVERSATIONS, names=("recall", "change_as_known", "delete_only"))
for row in slopes:
    if row["kind"] == "current":
        print(f"{row['rate']:16} {row['slope']:+.2f} points of current values a point of errors")
