"""Tokens as bad as tokens can be."""

BOMB = "💣".encode()
TOKENS = [
    b" the",
    b"<img src=x onerror=alert(1)>",
    b"</script><script>alert(2)</script>",
    b"\n",
    "\u202eevil".encode(),
    BOMB[:2],
    BOMB[2:],
    b"\x00\x1b[2J",
    "\u05e9\u05dc\u05d5\u05dd".encode(),  # a word in Hebrew
    "👩\u200d👧".encode(),
    b"&amp;{{ 7 * 7 }}",
    b"'\"`${1}",
    "\u0301".encode(),
    b"\xff",
    b" sea",
    b".",
]
PROMPT = [0, 14, 3]
K = 4
