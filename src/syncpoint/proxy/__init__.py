"""The front door of a cluster: takes clients in, finds who serves them, hides from them who died. See DESIGN.md."""
