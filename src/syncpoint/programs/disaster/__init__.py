"""Disaster recovery from outside: projects reconciled each day, and drills with a certificate."""
