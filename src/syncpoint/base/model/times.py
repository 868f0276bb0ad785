"""Times that several rooms have to agree on, in seconds, and what must be so between them.

A grant is safe when its holder stops before its giver begins to think of somebody else, whatever messages were late.
Holders count from when they sent what was answered; givers from when they received it; a giver that may have lost its
chain counts from when the chain's disks last answered it, and reports how long ago that was.
"""

from syncpoint.base.model.limits import PULL_WAIT_SECONDS_MAX

# -- grants ------------------------------------------------------------------------------------------------------------
GRANT_S = 5.0  # a giver keeps a holder's grants for this long after its last word; a new owner of a chain waits for it
HOLD_S = 4.0  # a holder relies on them for this long after sending the last heartbeat that came back
BEAT_S = 1.0  # between two heartbeats
LOOK_S = 1.0  # at most between two questions to each disk of a chain, while all is well
RECONNECT_S = 1.0  # how long a lost stream's grants wait, where a second delivery does no harm
SESSION_S = 30.0  # a forwarder whose stream is lost may come back to what it served for this long

assert HOLD_S < GRANT_S, "who holds a grant must stop before anybody else begins"
assert BEAT_S + LOOK_S <= HOLD_S / 2, "one late answer must not put grants in doubt"
assert RECONNECT_S < GRANT_S < SESSION_S

# -- calls that a proxy relays, where the caller has set no deadline ---------------------------------------------------
UNKNOWN_S = 5.0  # a subscribe forwarder reports the outcome of an acknowledgement as unknown after this long
ACK_S = 15.0  # a proxy waits this long for a subscribe forwarder's answer to acknowledgements
PULL_S = 40.0  # and this long for messages

assert UNKNOWN_S < ACK_S, "a proxy that gives up first does not know which acknowledgements are unknown"
assert PULL_WAIT_SECONDS_MAX < PULL_S, "a proxy that gives up first takes messages for lost that are on their way"

# -- clocks ------------------------------------------------------------------------------------------------------------
CLOCK_WRITE_S = 60.0  # between two times that a process writes its clock down
FRESH_S = 200.0  # a reading of another host's clock is usable for this long

assert 3 * CLOCK_WRITE_S < FRESH_S, (
    "one that could not be written in time, or two, must not make the others' clocks unknown"
)
