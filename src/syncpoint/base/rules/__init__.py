"""Languages in which users say which messages they want: one parser each, one meaning.

Place: text becomes a program here once, when a rule is created; the kernel runs the program for every message.
"""
