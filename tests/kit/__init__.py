"""What tests share: the rooms put together, with disks, networks and time of their own."""
