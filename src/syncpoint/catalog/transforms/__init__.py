"""Message transforms: JavaScript functions, compression and inference, applied to messages one by one.

Place: on a topic before a message is stored, on a subscription before it is delivered. See DESIGN.md.
"""
