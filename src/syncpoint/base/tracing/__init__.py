"""Traces: spans that continue what clients began, for a collector that speaks OTLP"""
