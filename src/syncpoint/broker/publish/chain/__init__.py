"""Chain: one log opened under an epoch, all chains of a process, and what operators ask of them."""
