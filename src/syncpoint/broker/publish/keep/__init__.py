"""Keep: what must stay in a log, what a seek changes, and the upkeep of both."""
