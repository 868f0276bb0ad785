"""The catalog: what exists and who may use it.

Topics and subscriptions in the metadata store, schemas, transforms and access control.
"""
