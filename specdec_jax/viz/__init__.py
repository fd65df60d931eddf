"""Pictures and pages: how one token keeps the target's distribution, and what happened in a generation.

Its modules import matplotlib, so they are imported one by one where they are needed.
"""
