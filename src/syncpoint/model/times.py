"""Times that publish and subscribe forwarders have to agree on, and what must be so between them.

A grant is safe when its holder stops before its giver begins to think of somebody else, whatever messages were late.
Holders count from when they sent what was answered; givers from when they heard it; a giver that may have lost its
chain counts from when the chain's disks last answered it, and says how long that is ago.
"""

GRANT_S = (
    5.0  # so long after its last word a giver keeps a holder's grants; so long a new owner of a chain waits for it
)
HOLD_S = 4.0  # so long after sending the last heartbeat that came back a holder relies on them
BEAT_S = 1.0  # between two heartbeats
LOOK_S = 1.0  # at most between two questions to each disk of a chain, while all is well
RECONNECT_S = 1.0  # how long a lost stream's grants wait, where a second delivery does no harm
SESSION_S = 30.0  # so long a forwarder whose stream is lost may come back to what it served

assert HOLD_S < GRANT_S, "who holds a grant must stop before anybody else begins"
assert BEAT_S + LOOK_S <= HOLD_S / 2, "one late answer must not put grants in doubt"
assert RECONNECT_S < GRANT_S < SESSION_S
