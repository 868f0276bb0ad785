"""`syncpoint serve --workers K`: many processes of one machine behind one port, on the same disk folders."""
