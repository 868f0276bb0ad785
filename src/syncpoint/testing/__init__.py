"""Test kit shipped with the product: a server to hold in a test, and a pytest fixture around it."""
