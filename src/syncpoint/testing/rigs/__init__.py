"""Rigs for tests: files and stores in memory, harnesses of rooms, histories with their checkers, and real clients.

Place: in the distribution `syncpoint-testing`, with the simulation; the wheel that users install has neither.
"""
