"""Test kit: a server in a test and a pytest fixture around it; the distribution `syncpoint-testing` adds the rest."""
