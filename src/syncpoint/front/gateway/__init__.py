"""One address in front of several sites, so that official clients need nothing for disaster recovery. See DESIGN.md."""
