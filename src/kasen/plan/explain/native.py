"""EXPLAIN, the part that Spark does itself: what crosses into Kasen's operators, and why not less."""

from __future__ import annotations

from kasen.plan.native.lower import lower
from kasen.plan.physical import Plan


def explain_native(plan: Plan) -> str:
    """For every stream what Spark computes (native) and what is left to the operators (kernel)."""
    lines = ["on Spark, in the driver:"]
    partials = plan.app.setting("native_panes") != "off"
    for name, scan in lower(plan, partials=partials).scans.items():
        lines.append(f"  scan of {name} (native)")
        lines += [f"    {note if note.startswith(_TOLD) else f'kernel: {note}'}" for note in scan.notes]
        if scan.partials is None:
            lines.append("    kernel: order, windows and all above, on the rows that cross")
        else:
            lines.append("    kernel: order, windows and all above, on the partials that cross")
            if plan.app.setting("native_panes", "auto") == "auto":
                lines.append(
                    "    on a local master rows cross whole, which is faster there: SET native_panes"
                )
    return "\n".join(lines) + "\n"


_TOLD = ("native:", "kernel:", "order:")
