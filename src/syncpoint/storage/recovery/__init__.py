"""From what lies on the disks to a store: one duty per file, in the order scan, find_tail, repair, recover; later trim."""
