"""From what lies on the disks to a store: one duty per file: scan, find_tail, repair, recover; later trim."""
